"""What `diagnose` measured in a script: blocks of steps, by what was tried in them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.planfile import Interval
from paceline.values import dataclass
from paceline.watch.diagnosis.gpu_steps import GpuStep, gpu_step_of
from paceline.watch.events import RankEvents, rank_names
from paceline.watch.observer import doubt

#: Epochs of at most so many steps show their beginnings in every block.
_SHORT_EPOCH_STEPS = 48
STANDARD_ERRORS = 2.0
#: Standard error of a median, by the median distance from it: 1.4826 makes that the standard
#: deviation of a normal distribution, whose median is 1.2533 times less sure than its mean.
_ROBUST = 1.4826 * 1.2533
#: Share of a step in waiting from which its workers set the pace.
_WAITING_FRAC = 0.04
#: Blocks that are slower for being looked into.
_LOOKED_INTO = ("lines", "profile")
#: Blocks in which the script does what it always does.
_AS_IT_IS = ("own", "replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Steps with one thing tried, of all ranks.

    Attributes:
        step_s: A step of the slowest rank, without what the training thread stood in line for a
            core behind other programs: what it would take on a calm machine.
        error_s: Standard error of that.
        by_rank_s: The same of each rank.
        wall_s: A step by the clock.
        wait_s: Of a step, in waiting for batches.
        times: Steps of the script whose samples one of these has.
    """

    name: str
    step_s: float
    error_s: float
    by_rank_s: tuple[float, ...]
    wall_s: float
    wait_s: float
    times: int
    saves: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How crowded the machine was.

    Attributes:
        num_cores: That the script may use.
        others_cores: Cores that other programs used, in the mean.
        stood_frac: Share of its time that the training thread stood in line behind them.
    """

    num_cores: int
    others_cores: float
    stood_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that a throwaway run told.

    Attributes:
        facts: Of the script, as the first rank read them; empty before its warm steps.
        blocks: In their order.
        lines: The script's own statements, of a step: mappings of `torch_lines`, with ``own_s``.
        probes: What the loader gave by itself, by name.
        crowd: How crowded it was; None where nothing was measured.
        trial: What was being tried last.
        seconds: Of trying; None where it did not come to its end.
        gpu: A step on the first rank's GPU; None without one, or where nothing was recorded.
        ranks: Their names, as printed.
    """

    facts: Mapping[str, Any]
    blocks: tuple[Block, ...]
    lines: tuple[Mapping[str, Any], ...]
    probes: Mapping[str, Mapping[str, Any]]
    crowd: Crowd | None
    trial: str
    seconds: float | None
    gpu: GpuStep | None = None
    ranks: tuple[str, ...] = ()

    def named(self, name: str) -> tuple[Block, ...]:
        """Blocks in which that was tried."""
        return tuple(one for one in self.blocks if one.name == name)

    def step_s(self, name: str) -> float:
        """Median of the blocks of a name, per step of the script; NaN without any."""
        steps = [one.step_s / one.times for one in self.named(name)]
        return statistics.median(steps) if steps else float("nan")

    def share(self, name: str) -> Interval | None:
        """How much of a step is left with something tried, each time beside its own reference.

        Args:
            name: What was tried; larger batches stand beside the same few batches, everything else
                beside the script as it is. None where it was not.
        """
        seen = [(one.name, one.step_s / one.times) for one in self.blocks]
        found = doubt.shares(seen, name)
        if not found:
            return None
        errors = [one.error_s / one.step_s for one in self.named(name)]
        beside = [one.error_s / one.step_s for one in self.named(doubt.reference_of(name))]
        error = statistics.median(errors) + statistics.median(beside)
        low, mid, high = doubt.interval(found, doubt.chance(seen), error * statistics.median(found))
        return Interval(low=low, mid=mid, high=high)


def found_in(training: Sequence[RankEvents]) -> Found:
    """What the ranks of a throwaway run told.

    Args:
        training: Their lines, the first rank first.
    """
    first = training[0]
    facts = dict(first.last("trials"))
    by_rank = [list(one.events.get("block", [])) for one in training]
    rows = list(zip(*by_rank, strict=False))
    whole = [row for row in rows if all(map(_is_whole, row))]
    begins_s = _begins_s(whole, facts)
    blocks = tuple(_block(row, facts, begins_s) for row in whole)
    probes = {str(e.get("name")): e for e in first.events.get("probe", [])}
    traced = [e for e in by_rank[0] if e.get("name") == "lines" and _is_whole(e)]
    return Found(
        facts=facts,
        blocks=tuple(one for one in blocks if one.name not in _LOOKED_INTO),
        lines=tuple(_lines(traced[-1])) if traced else (),
        probes=probes,
        crowd=_crowd(rows, facts),
        trial=str(first.last("trial").get("name", "")),
        seconds=first.last("trials_done").get("seconds"),
        gpu=gpu_step_of(first.last("gpu_steps")),
        ranks=rank_names(training),
    )


def _is_whole(event: Mapping[str, Any]) -> bool:
    steps, stood, machine = (event.get(name) or () for name in ("steps", "stood", "machine"))
    return bool(steps) and len(steps) == len(stood) and len(machine) >= 4


def _block(
    row: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], begins_s: Mapping[str, float]
) -> Block:
    first = row[0]
    period = _period(first, facts)
    groups = [_groups(steps, period) for steps in _steady_s(row, facts)]
    begin_s = begins_s.get(_feed(first), 0.0) / max(1, facts.get("epoch_steps") or 1)
    by_rank = [statistics.median(one) + begin_s for one in groups]
    slowest = max(range(len(row)), key=lambda rank: by_rank[rank])
    taken = groups[slowest]
    middle = statistics.median(taken)
    spread = _ROBUST * statistics.median(abs(one - middle) for one in taken)
    num_steps = len(first["steps"])
    return Block(
        name=str(first["name"]),
        step_s=by_rank[slowest],
        error_s=spread / len(taken) ** 0.5,
        by_rank_s=tuple(by_rank),
        wall_s=max(_mean(e["steps"]) for e in row) / 1e9,
        wait_s=max(e["parts"]["wait"] / 1e9 / len(e["steps"]) for e in row),
        times=int(first.get("times", 1)),
        saves=first["num_saves"] / num_steps,
    )


def _steady_s(row: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[Sequence[float]]:
    """Seconds of each rank's steps on a calm machine, without those that begin an epoch.

    Epochs that are shorter than a block stand whole in it, with their beginnings.
    """
    steady: list[Sequence[float]] = []
    for e, stood_ns in zip(row, _stood_ns(row, facts), strict=True):
        calm = [max(0.0, a - b) / 1e9 for a, b in zip(e["steps"], stood_ns, strict=True)]
        begins = set() if _is_short(facts) else {place for place, *_ in e.get("begins", ())}
        rest = [one for place, one in enumerate(calm) if place not in begins]
        steady.append(rest or calm)
    return steady


def _begins_s(
    rows: Sequence[Sequence[Mapping[str, Any]]], facts: Mapping[str, Any]
) -> Mapping[str, float]:
    """By feed, how much longer than others a step takes that begins an epoch: workers start."""
    found: dict[str, list[float]] = {}
    for row in [] if _is_short(facts) else rows:
        for e, steady in zip(row, _steady_s(row, facts), strict=True):
            share = _others_share(e, row, facts)
            for _, wall, stood in e.get("begins", ()):
                longer_s = (wall - share * stood) / 1e9 - statistics.median(steady)
                found.setdefault(_feed(e), []).append(max(0.0, longer_s))
    return {feed: statistics.median(every) for feed, every in found.items()}


def _feed(event: Mapping[str, Any]) -> str:
    return json.dumps(event["feed"], sort_keys=True)


def _is_short(facts: Mapping[str, Any]) -> bool:
    return 0 < (facts.get("epoch_steps") or 0) <= _SHORT_EPOCH_STEPS


def _stood_ns(row: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[Sequence[float]]:
    """Of each step of each rank, what it lost by standing in line for a core behind others.

    A script with as many runnable threads as cores, or fewer, stands in line for others alone.
    With more, a thread also stands behind the script's own workers, threads and ranks, which is a
    part of the step on a calm machine too: each has its share of the line as it has of the cores.
    Where the script waits for its workers, a step takes what they take, and what they stood counts;
    ranks that reduce gradients wait for the slowest of them and of the threads that exchange.
    """
    is_team = _threads(row[0], facts) * len(row) > facts.get("num_cores", 1)
    ranks_ns = max(
        _others_share(e, row, facts) * (sum(e["stood"]) + 1e9 * sum(e["machine"][4:])) for e in row
    )
    found: list[Sequence[float]] = []
    for e in row:
        share, workers = _others_share(e, row, facts), _workers(e, facts)
        stood_ns = [share * one for one in e["stood"]]
        waited_ns = e["parts"]["wait"]
        if is_team:  # More threads than cores wait for each other.
            stood_ns = [0.0] * len(stood_ns)
        elif workers and waited_ns > _WAITING_FRAC * sum(e["steps"]):
            theirs_ns = share * 1e9 * max(0.0, e["machine"][3]) / workers
            lost_ns = min(waited_ns + sum(stood_ns), theirs_ns)
            stood_ns = [lost_ns / len(stood_ns)] * len(stood_ns)
        elif len(row) > 1 and e.get("settings", {}).get("sync", True):
            idle_ns = sum(e["steps"]) - e.get("cpu_ns", 0)
            stood_ns = [min(idle_ns, ranks_ns) / len(stood_ns)] * len(stood_ns)
        found.append(stood_ns)
    return found


def _others_share(
    event: Mapping[str, Any], row: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
) -> float:
    """Of what stands in line before a rank's threads, how much is other programs'."""
    others_s, own_s = _core_seconds(row)
    # While a thread stands behind another program, that has a core.
    most: float = others_s / max(1e-9, sum(event["stood"]) / 1e9)
    threads = _threads(event, facts) + (len(row) > 1)  # One more reduces gradients.
    if len(row) * (threads + _workers(event, facts)) <= facts.get("num_cores", 1):
        return min(1.0, most)
    beside_s = max(0.0, own_s - event["cpu_ns"] / 1e9) if "cpu_ns" in event else 0.0
    return min(most, others_s / (others_s + beside_s)) if others_s > 0 else 0.0


def _threads(event: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Threads that an op of a rank had."""
    return int(event.get("settings", {}).get("threads") or facts.get("num_threads") or 1)


def _workers(event: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Workers that made the batches of a block."""
    feed = event["feed"]
    if feed["as"] == "replay":
        return 0
    return int(feed.get("workers", facts.get("num_workers")) or 0)


def _core_seconds(row: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """What other programs and the script had of the cores in a block of all ranks.

    Ranks that do not wait for each other end at their own time: the last one saw all of it.
    """
    own_s = sum(e["machine"][2] for e in row)
    last = max(row, key=lambda e: float(e["machine"][0]))
    return max(0.0, last["machine"][1] - own_s), own_s


def _period(event: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Steps after which long ones come again: a worker's turn, an epoch, a save, an update."""
    num_steps, feed = len(event["steps"]), event["feed"]
    together = int(event.get("settings", {}).get("accumulated") or 1)
    if 0 < event["num_saves"] < num_steps:
        return num_steps
    if feed["as"] != "replay" and _is_short(facts):
        return int(facts["epoch_steps"])
    return max(together, _workers(event, facts))


def _groups(steps: Sequence[float], period: int) -> list[float]:
    """Means of so many steps in a row; a shorter rest is left out where there are others."""
    starts = range(0, max(1, len(steps) - period + 1), period)
    return [_mean(steps[start : start + period]) for start in starts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lines(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Statements with their seconds of a step, without what stood in line for a core."""
    lines = event.get("lines", [])
    stood_ns = sum(event["stood"])
    gap_ns = sum(event["steps"]) - event.get("cpu_ns", 0)
    blocked_frac = max(0.0, 1.0 - stood_ns / gap_ns) if gap_ns > stood_ns > 0 else 0.0
    if stood_ns == 0:
        blocked_frac = 1.0
    return [
        dict(
            one,
            own_s=(one["cpu_ns"] + blocked_frac * max(0.0, one["own_ns"] - one["cpu_ns"]))
            / len(event["steps"])
            / 1e9,
        )
        for one in lines
    ]


def _crowd(rows: Sequence[Sequence[Mapping[str, Any]]], facts: Mapping[str, Any]) -> Crowd | None:
    # What is tried may crowd the machine by itself.
    told = [row for row in rows if all(map(_is_whole, row)) and row[0]["name"] in _AS_IT_IS]
    wall_s = sum(row[0]["machine"][0] for row in told)
    stepping_ns = sum(sum(e["steps"]) / len(row) for row in told for e in row)
    if wall_s <= 0.0 or stepping_ns <= 0.0:
        return None
    stood_ns = sum(
        _others_share(e, row, facts) * sum(e["stood"]) / len(row) for row in told for e in row
    )
    return Crowd(
        num_cores=int(facts.get("num_cores", 1)),
        others_cores=sum(_core_seconds(row)[0] for row in told) / wall_s,
        stood_frac=stood_ns / stepping_ns,
    )
