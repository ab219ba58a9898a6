"""Links as columns: what a collective needs to know of the wire, one row per candidate."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Link
from paceline.trace.graph import FloatArray

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)

#: Library protocols: few bytes at low latency, or many at full rate. The library takes the faster.
NUM_PROTOCOLS = 2
GENERIC_KIND = "generic"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkTable:
    """Links as arrays, with the measured coefficients of their kind beside them.

    A row without a link has ``bytes_per_s`` 0: whatever must cross it takes for ever.

    Attributes:
        bytes_per_s: Peak per device (inside a node) or per node (between), per direction,
            (num_links,).
        latency_s: One-way latency of a small message on the wire, (num_links,).
        reduces_in_switch: Whether the switch can reduce, (num_links,).
        base_s: Start-up of one collective call, (num_links, num_collectives, 2 protocols).
        hop_s: Each further step of it, same shape.
        efficiency_frac: Share of ``bytes_per_s`` that large messages reach, same shape.
        switch_efficiency_frac: Bus bandwidth of an all-reduce in the switch as a share of
            ``bytes_per_s``, (num_links,).
    """

    bytes_per_s: FloatArray
    latency_s: FloatArray
    reduces_in_switch: npt.NDArray[np.bool_]
    base_s: FloatArray
    hop_s: FloatArray
    efficiency_frac: FloatArray
    switch_efficiency_frac: FloatArray

    @classmethod
    def from_links(cls, links: Sequence[Link | None]) -> LinkTable:
        """One row per link; None becomes a link that carries nothing."""
        coefficients = load_coefficients()
        rows = [coefficients[coefficient_kind(link)] for link in links]
        return cls(
            bytes_per_s=np.array([link.bytes_per_s if link else 0.0 for link in links]),
            latency_s=np.array([link.latency_s if link else 0.0 for link in links]),
            reduces_in_switch=np.array([bool(link and link.reduces_in_switch) for link in links]),
            base_s=np.array([row.base_s for row in rows]).reshape(-1, len(COLLECTIVES), 2),
            hop_s=np.array([row.hop_s for row in rows]).reshape(-1, len(COLLECTIVES), 2),
            efficiency_frac=np.array([row.efficiency_frac for row in rows]).reshape(
                -1, len(COLLECTIVES), 2
            ),
            switch_efficiency_frac=np.array([row.switch_efficiency_frac for row in rows]),
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.bytes_per_s)

    def take(self, rows: npt.ArrayLike) -> LinkTable:
        """The table with these rows, in this order; rows may repeat."""
        index = np.asarray(rows)
        return LinkTable(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkCoefficients:
    """Measured behaviour of one kind of link.

    Attributes:
        base_s: Start-up of a call, (num_collectives, 2 protocols).
        hop_s: Each step, same shape.
        efficiency_frac: Share of the peak that large messages reach, same shape.
        switch_efficiency_frac: Share of the peak when the switch reduces.
    """

    base_s: FloatArray
    hop_s: FloatArray
    efficiency_frac: FloatArray
    switch_efficiency_frac: float


def coefficient_kind(link: Link | None) -> str:
    """Row of the coefficient file that describes a link; ``generic`` where its kind has none."""
    known = load_coefficients()
    kind = link.kind.lower() if link else GENERIC_KIND
    return kind if kind in known else GENERIC_KIND


@cache
def load_coefficients() -> Mapping[str, LinkCoefficients]:
    """Coefficients by kind of link, from ``data/collectives.csv`` (source in each row)."""
    path = resources.files("paceline.parallel") / "data" / "collectives.csv"
    with path.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    kinds = dict.fromkeys(row["kind"] for row in rows)
    return {kind: _coefficients([r for r in rows if r["kind"] == kind]) for kind in kinds}


def _coefficients(rows: list[dict[str, str]]) -> LinkCoefficients:
    by_key = {(row["collective"], row["protocol"]): row for row in rows}
    protocols = ("low_latency", "bandwidth")

    def column(name: str) -> FloatArray:
        return np.array([[float(by_key[c, p][name]) for p in protocols] for c in COLLECTIVES])

    return LinkCoefficients(
        base_s=column("base_s"),
        hop_s=column("hop_s"),
        efficiency_frac=column("efficiency_frac"),
        switch_efficiency_frac=float(by_key["all_reduce", "in_switch"]["efficiency_frac"]),
    )
