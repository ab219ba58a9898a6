"""The scaling curve of the first choice's device, and the knee where more devices stop paying."""

from __future__ import annotations

import numpy as np

from paceline.planfile import ScalingPoint
from paceline.planning.decisions.knee_point import knee
from paceline.planning.explain.wording import plural
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import bound_word
from paceline.planning.search.preference import competing
from paceline.units import efficiency_text, format_percent

_REASONS = {
    "input": "the machine feeds no more",
    "communication": "communication between devices is exposed",
    "launch": "the share of the batch left to each device no longer fills it",
}


def scaling_curve(search: Search, best: int) -> tuple[ScalingPoint, ...]:
    """Best throughput by number of devices, over all ranked offers of the first choice's device.

    Efficiency is against the pace per device of the smallest count, one if the job fits there.
    """
    candidates, evaluation = search.candidates, search.evaluation
    device = search.places.device[candidates.place]
    rows = competing(search, search.is_ranked & (device == device[best]))
    order = np.lexsort((-evaluation.samples_per_s[rows], candidates.num_devices[rows]))
    counts, first = np.unique(candidates.num_devices[rows][order], return_index=True)
    tops = rows[order[first]]
    per_device = evaluation.samples_per_s[tops] / counts
    return tuple(
        ScalingPoint(
            num_devices=int(count),
            offer=search.found.places[candidates.place[row]].offer.name,
            samples_per_s=float(evaluation.samples_per_s[row]),
            efficiency_frac=float(rate / per_device[0]),
            usd_per_million_samples=float(evaluation.usd_per_million[row]),
            bound=bound_word(search, int(row)),
        )
        for count, row, rate in zip(counts, tops, per_device, strict=True)
    )


def knee_sentence(search: Search, curve: tuple[ScalingPoint, ...]) -> str:
    """Where more devices stop paying and why; empty for one point, and for replicas."""
    if len(curve) < 2 or search.workload.task == "infer":
        return ""
    found = knee([point.num_devices for point in curve], [p.samples_per_s for p in curve])
    words = f"{plural(found.count, 'device')} ({_efficiency(curve, found.efficiency_frac)})"
    if found.next_marginal_frac is None:
        return f"worthwhile up to {words}; no larger count was tried"
    beyond = next(point for point in curve if point.num_devices > found.count)
    reason = _REASONS.get(beyond.bound, _batch_reason(search, beyond.num_devices))
    share = format_percent(max(found.next_marginal_frac, 0.0))
    return f"{words}; beyond it a further device adds {share} of the first one's work: {reason}"


def _efficiency(curve: tuple[ScalingPoint, ...], efficiency_frac: float) -> str:
    """The pace of each device against that in the smallest number that holds the model."""
    share, fewest = format_percent(efficiency_frac), curve[0].num_devices
    words = efficiency_text(efficiency_frac)
    return words if fewest == 1 else f"each at {share} of its pace among {fewest:,}"


def _batch_reason(search: Search, num_devices: int) -> str:
    limit = search.goal.global_batch or search.question.batch_limit.max_items
    if limit is None:
        return "each device adds less"
    return f"the global batch limit of {limit:,} leaves {limit // num_devices} to each device"
