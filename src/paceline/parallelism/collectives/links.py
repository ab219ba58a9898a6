"""Links as columns: what a collective needs to know of the wire, one row per candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Link
from paceline.columns import take_rows
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.collectives.communicators import num_channels
from paceline.shipped import shipped_rows
from paceline.values import dataclass

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)

#: Ranks at which coefficients were measured; between them they are interpolated.
MEASURED_RANKS: tuple[int, ...] = (2, 4, 8)

#: Ideal seconds of a message (bytes over the link's peak) at which efficiencies are kept.
KNOT_S: tuple[float, ...] = tuple(2.0**power for power in range(-24, -6, 2))

#: Kinds of transfer that have coefficients of their own: collectives, and the switch's all-reduce.
TRANSFERS: tuple[str, ...] = (*COLLECTIVES, "in_switch")

GENERIC_KIND = "generic"

#: Call time of a transfer that a kind of link does not offer; finite, so that it interpolates.
_NEVER_S = 1e30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkTable:
    """Links as arrays, (num_links,) each.

    A row without a link has ``bytes_per_s`` 0: whatever must cross it takes for ever.

    Attributes:
        bytes_per_s: Peak per device (inside a node) or per node (between), per direction.
        num_nodes: Nodes of one domain, whose networks carry what leaves it together.
        latency_s: One-way latency of a small message on the wire.
        num_channels: Of a communicator of the devices that it joins.
        reduces_in_switch: Whether the switch can reduce.
        kind_row: Row of `Coefficients` that describes its kind.
        log_sigma: How unsure steps are that share it, per doubling of ranks, …
        sent_log_sigma: … and besides, where they do nothing but send.
        coefficients: Measured behaviour of every kind.
    """

    bytes_per_s: FloatArray
    num_nodes: FloatArray
    latency_s: FloatArray
    num_channels: IntArray
    reduces_in_switch: npt.NDArray[np.bool_]
    kind_row: npt.NDArray[np.int64]
    log_sigma: FloatArray
    sent_log_sigma: FloatArray
    coefficients: Coefficients

    @classmethod
    def from_links(cls, links: Sequence[Link | None]) -> LinkTable:
        """One row per link, with shipped coefficients; None becomes a link that carries nothing."""
        # The same objects come again and again, and a link compares by many facts.
        each = {id(link): link for link in links}
        table, distinct = load_coefficients(), list(each.values())
        rows = {key: row for row, key in enumerate(each)}
        sigmas = [_log_sigmas(link.kind if link else "") for link in distinct]
        spreads = np.array(sigmas).reshape(-1, 2)
        once = cls(
            bytes_per_s=np.array([link.bytes_per_s if link else 0.0 for link in distinct]),
            num_nodes=np.ones(len(distinct)),
            latency_s=np.array([link.latency_s if link else 0.0 for link in distinct]),
            num_channels=np.array([num_channels(link) for link in distinct], dtype=np.int64),
            reduces_in_switch=np.array(
                [bool(link and link.reduces_in_switch) for link in distinct], dtype=np.bool_
            ),
            kind_row=np.array([table.row_of(link) for link in distinct], dtype=np.int64),
            log_sigma=spreads[:, 0],
            sent_log_sigma=spreads[:, 1],
            coefficients=table,
        )
        return once.take(np.array([rows[id(link)] for link in links], dtype=np.int64))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.bytes_per_s)

    def of_nodes(self, num_nodes: npt.ArrayLike) -> LinkTable:
        """The networks of so many nodes, which one domain joins."""
        nodes = np.broadcast_to(np.asarray(num_nodes, dtype=np.float64), self.num_nodes.shape)
        return replace(self, num_nodes=nodes)

    def take(self, rows: npt.ArrayLike) -> LinkTable:
        """The table with these rows, in this order; rows may repeat."""
        return take_rows(self, rows, alike=("coefficients",))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coefficients:
    """Measured behaviour of every kind of link.

    Attributes:
        kinds: Row of each kind of link with the peak it was measured at in bytes per second, or 0
            where it stands for every link of the kind.
        call_s: Time of a call with next to no bytes,
            (num_kinds, num_transfers, len(MEASURED_RANKS)).
        hop_s: What each rank beyond the last measured count adds, (num_kinds, num_transfers).
        log_efficiency: Logarithm of the share of the peak that the bytes reach,
            (num_kinds, num_transfers, len(MEASURED_RANKS), len(KNOT_S)).
    """

    kinds: Mapping[tuple[str, float], int]
    call_s: FloatArray
    hop_s: FloatArray
    log_efficiency: FloatArray

    def row_of(self, link: Link | None) -> int:
        """Row of a link: of its kind and peak, else of its kind, else generic.

        >>> load_coefficients().row_of(None) == load_coefficients().kinds["generic", 0.0]
        True
        """
        exact = [] if link is None else [(link.kind, link.bytes_per_s), (link.kind, 0.0)]
        known = (self.kinds[kind] for kind in exact if kind in self.kinds)
        return next(known, self.kinds[GENERIC_KIND, 0.0])


@cache
def _log_sigmas(kind: str) -> tuple[float, float]:
    """Of a kind of link, from ``data/link_spread.csv``, whose last line stands for any other."""
    known = shipped_rows("parallelism", "link_spread.csv")
    line = next(line for line in known if line["kind"] in (kind, ""))
    return float(line["log_sigma_per_doubling"]), float(line["log_sigma_of_communication"])


@cache
def load_coefficients() -> Coefficients:
    """Coefficients by kind of link, from ``data/collectives.csv`` (source in each row)."""
    return read_coefficients(shipped_rows("parallelism", "collectives.csv"))


def read_coefficients(rows: Sequence[Mapping[str, str]]) -> Coefficients:
    """Coefficients from the rows of a file; a kind without a switch row never uses its switch."""
    keys = [(row["kind"], float(row["peak_bytes_per_s"])) for row in rows]
    kinds = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    shape = (len(kinds), len(TRANSFERS), len(MEASURED_RANKS))
    call_s, hop_s = np.full(shape, _NEVER_S), np.zeros(shape[:2])
    log_efficiency = np.zeros((*shape, len(KNOT_S)))
    for key, row in zip(keys, rows, strict=True):
        kind, transfer = kinds[key], TRANSFERS.index(row["collective"])
        ranks = MEASURED_RANKS.index(int(row["num_ranks"]))
        call_s[kind, transfer, ranks] = float(row["call_s"])
        hop_s[kind, transfer] = float(row["hop_s"])
        log_efficiency[kind, transfer, ranks] = np.log(
            [float(row[f"eff_{knot}"]) for knot in range(len(KNOT_S))]
        )
    return Coefficients(kinds=kinds, call_s=call_s, hop_s=hop_s, log_efficiency=log_efficiency)
