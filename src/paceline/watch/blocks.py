"""What `diagnose` measured in a script: blocks of steps, by what was tried in them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.planfile import Interval
from paceline.watch.events import RankEvents

#: Epochs of at most so many steps show their beginnings in every block.
_SHORT_EPOCH_STEPS = 48
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Steps with one thing tried, of all ranks.

    Attributes:
        name: What was tried.
        step_s: A step of the slowest rank, without what the training thread stood in line for a
            core: what it would take on a calm machine.
        error_s: Standard error of that.
        by_rank_s: The same of each rank.
        wall_s: A step by the clock.
        wait_s: Of a step, in waiting for batches.
        times: Steps of the script whose samples one of these has.
        saves: Saves of a step.
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
        stood_frac: Share of its time that the training thread stood in line for a core.
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
    """

    facts: Mapping[str, Any]
    blocks: tuple[Block, ...]
    lines: tuple[Mapping[str, Any], ...]
    probes: Mapping[str, Mapping[str, Any]]
    crowd: Crowd | None
    trial: str
    seconds: float | None

    def named(self, name: str) -> tuple[Block, ...]:
        """Blocks in which that was tried."""
        return tuple(one for one in self.blocks if one.name == name)

    def step_s(self, name: str) -> float:
        """Median of the blocks of a name, per step of the script; NaN without any."""
        steps = [one.step_s / one.times for one in self.named(name)]
        return statistics.median(steps) if steps else float("nan")

    def ratio(self, name: str, beside: str) -> Interval | None:
        """How much longer a step takes with something tried, each round beside its own reference.

        Args:
            name: What was tried.
            beside: The block that stands before it in each round.
        """
        reference: Block | None = None
        ratios, errors = [], []
        for one in self.blocks:
            if one.name == beside:
                reference = one
            elif one.name == name and reference is not None:
                ratio = one.step_s / one.times / reference.step_s
                ratios.append(ratio)
                errors.append(ratio * (one.error_s / one.step_s + _error_frac(reference)))
        if not ratios:
            return None
        middle = statistics.median(ratios)
        spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
        # Within a block of whole epochs steps differ for a reason: rounds tell what chance does.
        error = spread if len(ratios) > 2 else max(spread, statistics.median(errors))
        half = _STANDARD_ERRORS * error / len(ratios) ** 0.5
        return Interval(low=max(0.0, middle - half), mid=middle, high=middle + half)


def _error_frac(block: Block) -> float:
    return block.error_s / block.step_s


def found_in(training: Sequence[RankEvents]) -> Found:
    """What the ranks of a throwaway run told.

    Args:
        training: Their lines, the first rank first.
    """
    first = training[0]
    facts = dict(first.last("trials"))
    by_rank = [list(one.events.get("block", [])) for one in training]
    rows = list(zip(*by_rank, strict=False))
    blocks = tuple(_block(row, facts) for row in rows if all(map(_is_whole, row)))
    probes = {str(e.get("name")): e for e in first.events.get("probe", [])}
    traced = [e for e in by_rank[0] if e.get("name") == "lines" and _is_whole(e)]
    return Found(
        facts=facts,
        blocks=tuple(one for one in blocks if one.name != "lines"),
        lines=tuple(_lines(traced[-1])) if traced else (),
        probes=probes,
        crowd=_crowd(rows, facts),
        trial=str(first.last("trial").get("name", "")),
        seconds=first.last("trials_done").get("seconds"),
    )


def _is_whole(event: Mapping[str, Any]) -> bool:
    return bool(event.get("steps")) and len(event["steps"]) == len(event.get("stood", ()))


def _block(row: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Block:
    first = row[0]
    threads = _threads(first, facts) * len(row)
    # More threads than cores stand in line for each other: that is a part of the step.
    share = 1.0 if threads <= facts.get("num_cores", 1) else 0.0
    calm = [
        [(wall - share * stood) / 1e9 for wall, stood in zip(e["steps"], e["stood"], strict=True)]
        for e in row
    ]
    period = _period(first, facts)
    groups = [_groups(one, period) for one in calm]
    by_rank = [statistics.median(one) for one in groups]
    slowest = max(range(len(row)), key=lambda rank: by_rank[rank])
    taken = groups[slowest]
    spread = statistics.stdev(taken) if len(taken) > 1 else 0.0
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


def _threads(event: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Threads that an op of a rank had."""
    return int(event.get("settings", {}).get("threads") or facts.get("num_threads") or 1)


def _period(event: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Steps after which long ones come again: a batch of each worker, an epoch, a save."""
    num_steps, epoch, feed = len(event["steps"]), facts.get("epoch_steps") or 0, event["feed"]
    if 0 < event["num_saves"] < num_steps:
        return num_steps
    if feed["as"] == "replay":
        return 1
    if 0 < epoch <= _SHORT_EPOCH_STEPS:
        return int(epoch)
    return max(1, int(feed.get("workers", facts.get("num_workers")) or 0))


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
    wall_s = busy_s = own_s = stood_s = stepping_s = 0.0
    for row in rows:
        if not all(_is_whole(e) and len(e.get("machine", ())) == 4 for e in row):
            continue
        if row[0]["name"] not in ("own", "replay"):
            continue  # What is tried may crowd the machine by itself.
        wall_s += row[0]["machine"][0]
        busy_s += row[0]["machine"][1]
        own_s += sum(e["machine"][2] for e in row)
        stood_s += sum(sum(e["stood"]) for e in row) / 1e9 / len(row)
        stepping_s += sum(sum(e["steps"]) for e in row) / 1e9 / len(row)
    if wall_s <= 0.0 or stepping_s <= 0.0:
        return None
    return Crowd(
        num_cores=int(facts.get("num_cores", 1)),
        others_cores=max(0.0, (busy_s - own_s) / wall_s),
        stood_frac=stood_s / stepping_s,
    )
