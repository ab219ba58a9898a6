"""What requests see of services on stated devices: a cell for each device, count and format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from paceline.errors import NoOfferError, PacelineError
from paceline.planfile import Interval
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.queue.figures import Replicas, ServiceFigures, service_figures
from paceline.simulation.queue.load import Load, Requests
from paceline.simulation.queue.one_setting import best_gains, gains_of
from paceline.simulation.queue.percentiles import Percentiles, Served
from paceline.values import dataclass

#: Rates that agree in so many digits are those of one load that is kept.
_RATE_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTimes:
    """A time that requests see, by percentile, each with its 80 % interval.

    Attributes:
        p50_s: Half of them see no more.
        p95_s: 95 of 100.
        p99_s: 99 of 100.
    """

    p50_s: Interval
    p95_s: Interval
    p99_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCell:
    """A service on some devices under a load.

    Attributes:
        device: Device name.
        num_replicas: Of the model.
        num_ranks: Devices that share each of them.
        precision: Name in ``dtypes.PRECISIONS``.
        first_token: Time to the first token; None where the service cannot run, and of what is
            answered whole, as of the next.
        per_token: From one token to the next.
        request: From sending a request to its last token.
        requests_per_s: Completed at the load.
        output_tokens_per_s: Of their answers; None of what is answered whole.
        capacity_requests_per_s: Completed at most, whatever is offered.
        status: ``served``; ``overloaded`` where more is offered than it can do, so that its queue
            grows as long as that lasts and no times can be told; ``cannot run``.
        reason: Why it cannot run; empty where it can.
        settings: The one setting to change with its gain, and a narrower format if that gains more;
            of the first that serves the load alone.
    """

    device: str
    num_devices: int
    num_replicas: int
    num_ranks: int
    precision: str
    first_token: SeenTimes | None = None
    per_token: SeenTimes | None = None
    request: SeenTimes | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    capacity_requests_per_s: Interval | None = None
    status: Literal["served", "overloaded", "cannot run"] = "served"
    reason: str = ""
    settings: tuple[str, ...] = ()


def service_cells(
    cases: Cases, load: Load, *, trace: Requests | None, calibration: Calibration
) -> tuple[ServiceCell, ...]:
    """A cell for each machine and way to run in a grid, whatever its batches.

    Args:
        cases: Of the grid.
        load: That comes to each service.
        trace: Requests that come instead.
        calibration: Of the predictor.

    Raises:
        InvalidInputError: Nothing of the grid is served.
    """
    kinds = np.stack([cases.job, cases.machine, cases.replicas])
    _, first = np.unique(kinds, axis=1, return_index=True)
    rows = np.sort(first).tolist()
    mean_tokens = load.prompt.mean + load.output.mean / 2.0
    services = [
        Replicas.of(
            cases.job_at(row),
            cases.machines[cases.machine[row]].with_count(_num_devices(cases, row)),
            mean_tokens=mean_tokens,
        )
        for row in rows
    ]
    found = service_figures(services, load, trace=trace, calibration=calibration)
    cells = [_cell(*one, load) for one in zip(services, found, strict=True)]
    cells = _advised(cells, services, load, calibration)
    running = {(cell.device, cell.num_devices) for cell in cells if not cell.reason}
    return tuple(c for c in cells if not c.reason or (c.device, c.num_devices) not in running)


def _advised(
    cells: list[ServiceCell], services: Sequence[Replicas], load: Load, calibration: Calibration
) -> list[ServiceCell]:
    """The cells, with what to change of the one that stands first."""
    first = first_cell(cells)
    if first is None:
        return cells
    best = cells.index(first)
    gains = best_gains(gains_of(services[best], load, {}, calibration=calibration))
    settings = tuple(gain.text(is_limited=False) for gain in gains)
    return [replace(c, settings=settings) if i == best else c for i, c in enumerate(cells)]


def first_cell(cells: Sequence[ServiceCell]) -> ServiceCell | None:
    """Of those that serve the load on the fewest devices, the one that can do most.

    Where a load waits for its answers, the one that completes most of it; None where nothing runs.
    """
    able = [cell for cell in cells if cell.status != "cannot run"]
    return min(able, key=_standing, default=None)


def _standing(cell: ServiceCell) -> tuple[float, ...]:
    completed_per_s = round(cell.requests_per_s or 0.0, _RATE_DIGITS)
    return cell.status != "served", cell.num_devices, -completed_per_s, -_capacity(cell)


def check_served(cells: Sequence[ServiceCell], load: Load) -> None:
    """Refuse a load that is more than every service can do.

    Raises:
        NoOfferError: It is; says what the largest does, and what would do.
    """
    known = [cell for cell in cells if cell.capacity_requests_per_s is not None]
    if load.arrivals != "poisson" or not known or not all(c.status == "overloaded" for c in known):
        return
    best = max(known, key=lambda cell: _capacity(cell) / cell.num_devices)
    asked = load.rate_per_s or 0.0
    devices = best.num_ranks * int(np.ceil(asked * best.num_replicas / _capacity(best) * 1.1))
    raise NoOfferError(
        f"{asked:g} requests/s are more than {best.num_devices}×{best.device} can do: at most "
        f"{_capacity(best):.3g} requests/s in {best.precision}",
        hint=f"take --devices {devices}, or at most --rps {_capacity(best) * 0.9:.2g}",
    )


def _capacity(cell: ServiceCell) -> float:
    return cell.capacity_requests_per_s.mid if cell.capacity_requests_per_s else 0.0


def _num_devices(cases: Cases, row: int) -> int:
    return cases.strategy_at(row).num_ranks


def _cell(service: Replicas, found: ServiceFigures | PacelineError, load: Load) -> ServiceCell:
    num_ranks = service.machine.num_devices
    plain = ServiceCell(
        device=service.machine.device.name,
        num_devices=num_ranks * service.num_replicas,
        num_replicas=service.num_replicas,
        num_ranks=num_ranks,
        precision=service.job.configuration.precision,
    )
    if isinstance(found, PacelineError):
        return replace(plain, reason=str(found), status="cannot run")
    offered = load.rate_per_s if load.arrivals == "poisson" else None
    is_overloaded = offered is not None and offered > found.capacity_per_s
    writes = service.job.engine is not None
    # With more waiting, requests may lose their room and be read again: few in flight can be best.
    best = max(1.0, found.mid.requests_per_s / found.capacity_per_s)
    return replace(
        plain,
        first_token=None if is_overloaded or not writes else _times(found, "first_token"),
        per_token=None if is_overloaded else _times(found, "per_token"),
        request=None if is_overloaded else _times(found, "request"),
        requests_per_s=found.mid.requests_per_s,
        output_tokens_per_s=found.mid.output_tokens_per_s if writes else None,
        capacity_requests_per_s=Interval(
            low=found.capacity_low_per_s * best,
            mid=found.capacity_per_s * best,
            high=found.capacity_high_per_s * best,
        ),
        status="overloaded" if is_overloaded else "served",
    )


def _times(found: ServiceFigures, name: str) -> SeenTimes | None:
    seen = [_seen(one, name) for one in (found.fast, found.mid, found.slow)]
    if any(np.isnan(one.p50_s) for one in seen):
        return None

    def at(percentile: str) -> Interval:
        low, mid, high = (float(getattr(one, percentile)) for one in seen)
        return Interval(low=min(low, mid), mid=mid, high=max(mid, high))

    return SeenTimes(p50_s=at("p50_s"), p95_s=at("p95_s"), p99_s=at("p99_s"))


def _seen(served: Served, name: str) -> Percentiles:
    seen: Percentiles = getattr(served, name)
    return seen
