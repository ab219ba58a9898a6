"""What a scaling curve says to a buyer: efficiency, the next device's worth, the knee and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.uncertainty import interval_of
from paceline.planning.decisions.curve import CountedStep, Limit, ScalingPoint
from paceline.planning.decisions.knee_point import Knee
from paceline.units import efficiency_text, format_percent, format_significant

#: Losses below this share of the step are not named as a reason.
_NAMED_LOSS_FRAC = 0.02
#: Where few devices are slow because the job hardly fits them, they are no measure of the others:
#: the best pace is, if it is faster by this factor.
_BETTER_PACE = 1.05


def throughput_per_device(steps: Sequence[CountedStep]) -> float:
    """Batch items per second and device that efficiency is measured against.

    That of the smallest count; the best one's where that is clearly faster, as where few devices
    must recompute, or keep their optimizer on the host.
    """
    paces = [step.items_per_s / step.count for step in steps]
    best = max(paces)
    return best if best > _BETTER_PACE * paces[0] else paces[0]


def finished_points(
    steps: Sequence[CountedStep], cluster: Cluster, num_items: float | None
) -> tuple[ScalingPoint, ...]:
    """Each count with what the others say of it: efficiency, limit, the next device; and money.

    Args:
        steps: One per count, fewest devices first.
        cluster: On what.
        num_items: Batch items of the whole job.
    """
    base = throughput_per_device(steps)
    gains = [*map(_gain_per_device, steps, steps[1:]), None]
    return tuple(
        _point(step, gain, base, cluster, num_items)
        for step, gain in zip(steps, gains, strict=True)
    )


def _point(
    step: CountedStep, gain: float | None, base: float, cluster: Cluster, num_items: float | None
) -> ScalingPoint:
    time_s = None if num_items is None else num_items / step.items_per_s
    usd_per_s = cluster.usd_per_device_s
    rate_usd = None if usd_per_s is None else step.count * usd_per_s
    cost_usd = None if time_s is None or rate_usd is None else time_s * rate_usd
    cost_log_sigma = math.hypot(step.log_sigma, cluster.price_log_sigma)
    efficiency = step.items_per_s / step.count / base
    return ScalingPoint(
        **{field.name: getattr(step, field.name) for field in fields(CountedStep)},
        step_interval_s=interval_of(step.step_s, step.log_sigma),
        items_per_s_interval=interval_of(step.items_per_s, step.log_sigma),
        time_s=time_s,
        time_interval_s=None if time_s is None else interval_of(time_s, step.log_sigma),
        cost_usd=cost_usd,
        cost_interval_usd=None if cost_usd is None else interval_of(cost_usd, cost_log_sigma),
        usd_per_million_items=_per_million(rate_usd, step.items_per_s),
        efficiency_frac=efficiency,
        limit=_limit(step, efficiency),
        next_device_items_per_s=gain,
        next_device_usd_per_million_items=_per_million(usd_per_s, gain),
    )


def _gain_per_device(step: CountedStep, following: CountedStep) -> float:
    return (following.items_per_s - step.items_per_s) / (following.count - step.count)


def _per_million(usd_per_s: float | None, items_per_s: float | None) -> float | None:
    if usd_per_s is None or items_per_s is None or items_per_s <= 0:
        return None
    return usd_per_s / items_per_s * 1e6


def _limit(step: CountedStep, efficiency_frac: float) -> Limit:
    """What costs most of the lost efficiency: memory, communication, or small batches."""
    if Strategy.parse(step.strategy).offloads_optimizer:
        return "memory"
    exposed_frac = step.exposed_communication_s / step.step_s
    small_batch_frac = 1.0 - efficiency_frac / (1.0 - exposed_frac)
    if max(exposed_frac, small_batch_frac) < _NAMED_LOSS_FRAC:
        return "nothing"
    return "collective" if exposed_frac >= small_batch_frac else "batch floor"


def knee_reason(
    points: Sequence[ScalingPoint], rejected: Sequence[tuple[int, str]], turn: Knee
) -> str:
    """One sentence: where the knee is, what a further device adds there, and why no more.

    Args:
        points: Finished points.
        rejected: Counts that do not work, with the reason.
        turn: Where the knee is.
    """
    at = next(point for point in points if point.count == turn.count)
    here = f"{turn.count:,} {'device' if turn.count == 1 else 'devices'}"
    if at.count > points[0].count:
        here += f" ({efficiency_text(at.efficiency_frac)})"
    following = next((point for point in points if point.count > turn.count), None)
    if following is None:
        beyond = [why for count, why in rejected if count > turn.count]
        why = f"beyond, {beyond[0]}" if beyond else "it still pays at the largest count tried"
        return f"{here}; {why}"
    gain = format_percent(max(turn.next_marginal_frac or 0.0, 0.0))
    worth = f"beyond, each further device adds {gain} of what a device does at best"
    return f"{here}; {worth}{_price(at)}: at {following.count:,} devices {_loss(following)}"


def _price(point: ScalingPoint) -> str:
    """What a million items cost, and what they cost from the next device."""
    usual, added = point.usd_per_million_items, point.next_device_usd_per_million_items
    if usual is None or added is None:
        return ""
    return (
        f" (a million more at {format_significant(added)} instead of "
        f"{format_significant(usual)} USD)"
    )


def _loss(point: ScalingPoint) -> str:
    share = format_percent(point.exposed_communication_s / point.step_s)
    return {
        "collective": f"exposed communication takes {share} of the step",
        "batch floor": f"a global batch of {point.global_batch:,} leaves "
        f"{point.global_batch / point.count:,.3g} to each, too few to keep it busy",
        "memory": "memory is short",
        "nothing": "small losses add up",
    }[point.limit]
