"""What it costs to go from one place to the next, and the cheapest way through places in a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.errors import InvalidInputError, MissingFactError
from paceline.model.graph.graph import FloatArray
from paceline.planning.places.price import traffic_out_usd_per_byte
from paceline.units import HOUR_S
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Data that must be brought to wherever a model is developed or trained.

    Attributes:
        at: The cloud where it lies; ``own`` for the user's own disks.
        bytes_per_s: Rate at which it leaves there.
        usd_per_byte_out: What leaving costs; None takes the catalogue's price.
    """

    size_bytes: float
    at: str
    bytes_per_s: float
    usd_per_byte_out: float | None = None

    def __post_init__(self) -> None:
        for name in ("size_bytes", "bytes_per_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidInputError(
                    f"the data set's `{name}` must be above zero and finite",
                    hint="write dataset: {size: 140GB, at: own, per_second: 100MB}",
                )
        if self.usd_per_byte_out is not None and self.usd_per_byte_out < 0:
            raise InvalidInputError(
                "traffic out costs less than nothing", hint="give usd_per_gb_out of 0 or more"
            )

    def out_usd(self) -> float:
        """What it costs to take all of it out once.

        Raises:
            MissingFactError: The price of traffic out of that cloud is not known.
        """
        known = self.usd_per_byte_out
        per_byte = traffic_out_usd_per_byte(self.at) if known is None else known
        if per_byte is None:
            raise MissingFactError(
                f"what {self.at} charges for traffic out is not known",
                hint="say it in the data set: usd_per_gb_out: 0.09",
            )
        return per_byte * self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stops:
    """Places that could do one phase, (num_stops,) each.

    Attributes:
        names: Of the places; equal names are the same machines.
        clouds: Who lets them.
        usd: What the phase costs there, moves aside.
        usd_per_hour: Of all its machines.
        rows: Candidate that does it.
    """

    names: tuple[str, ...]
    clouds: tuple[str, ...]
    usd: FloatArray
    usd_per_hour: FloatArray
    rows: tuple[int, ...]


def bring_usd(stops: Stops, dataset: Dataset) -> FloatArray:
    """Traffic and the machines' waiting while the data set comes, (num_stops,).

    Nothing where it lies already.
    """
    is_elsewhere = np.array([cloud != dataset.at for cloud in stops.clouds], dtype=bool)
    if not is_elsewhere.any():
        return np.zeros(len(stops.names))
    wait_hours = dataset.size_bytes / dataset.bytes_per_s / HOUR_S
    return np.asarray(is_elsewhere * (dataset.out_usd() + wait_hours * stops.usd_per_hour))


def bring_again_usd(before: Stops, after: Stops, dataset: Dataset) -> FloatArray:
    """The same for a phase after another, (num_before, num_after): nothing within one cloud."""
    is_new = _differ(before.clouds, after.clouds)
    is_new &= _differ(before.names, after.names)
    return np.asarray(is_new * bring_usd(after, dataset)[None, :])


def weights_usd(before: Stops, after: Stops, weights_bytes: FloatArray) -> FloatArray:
    """Traffic of trained weights to where they are served, (num_before, num_after).

    A cloud whose price of traffic is not known adds nothing here; the answer says so.

    ``weights_bytes``: of each place before, (num_before,).
    """
    per_byte = np.array([traffic_out_usd_per_byte(cloud) or 0.0 for cloud in before.clouds])
    return np.asarray(_differ(before.clouds, after.clouds) * (per_byte * weights_bytes)[:, None])


def cheapest_way(usd: Sequence[FloatArray], moves_usd: Sequence[FloatArray]) -> tuple[int, ...]:
    """One stop of each phase in a row, so that stops and moves together cost least.

    Args:
        usd: Of the stops of each phase, (num_stops,).
        moves_usd: Between each phase and the next, (num_before, num_after).

    Source:
        Bellman's recursion: the best way to a stop goes by the best way to the one before it.

    >>> near, far = np.array([1.0, 3.0]), np.array([3.0, 1.0])
    >>> dear_move, free_move = 5.0 * (1 - np.eye(2)), np.zeros((2, 2))
    >>> cheapest_way([near, far], [dear_move]), cheapest_way([near, far], [free_move])
    ((0, 0), (0, 1))
    """
    total, origins = usd[0], list[np.ndarray]()
    for here, move in zip(usd[1:], moves_usd, strict=True):
        sums = total[:, None] + move
        origins.append(sums.argmin(axis=0))
        total = sums.min(axis=0) + here
    way = [int(total.argmin())]
    for origin in reversed(origins):
        way.append(int(origin[way[-1]]))
    return tuple(reversed(way))


def _differ(before: Sequence[str], after: Sequence[str]) -> np.ndarray:
    return np.asarray(np.array(before)[:, None] != np.array(after)[None, :])
