"""What a watcher says of a run, each thing once: with evidence, and with what to do about it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.units import format_bytes, format_duration, format_usd
from paceline.values import dataclass
from paceline.watch.captured import CapturedJob
from paceline.watch.events import RankEvents, rank_names
from paceline.watch.expected import Expectation
from paceline.watch.steps import StepTimes, pace_text, step_times
from paceline.watch.where import Standing, line_of_exit, standing

#: Steps and seconds that a rate is judged over; a shorter look says nothing.
_LEAST_STEPS, _LEAST_S = 20, 1.0
#: Ranks that train, each with its last steps.
_Recent = Sequence[tuple[RankEvents, StepTimes]]
#: Share of a step in waiting from which a device starves.
_STARVED_FRAC = 0.3
#: How much longer than the others a rank takes up to its backward pass to be behind them.
_BEHIND = 1.25
#: Share of its time in line for a core from which a machine is crowded.
_CROWDED_FRAC = 0.2
#: Steps of the longest median that a rank may be silent for, beside the stated limit.
_SILENT_STEPS = 10.0
#: Losses that are no numbers, one after the other.
_NUM_LOST = 2
#: Rows that are looked through for losses: those of a GPU are read twice a second.
_RECENT_ROWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that a user should know.

    Attributes:
        kind: ``fit``, ``memory``, ``slow``, ``starved``, ``stalled``, ``lost``, ``idle``,
            ``diverging``, ``interruption``, ``deadline`` or ``budget``; each is said once.
        step: At which step; None before the first.
        text: What is seen, with its numbers.
        evidence: Where they come from.
    """

    kind: str
    step: int | None
    text: str
    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a user wants kept.

    Attributes:
        stall_s: Silence after which a rank is said to stall.
        idle_s: Time after which a job whose device does nothing is ended; None to leave it.
        deadline_s: Since the start; None without one.
        budget_usd: None without one.
        num_steps: Optimizer steps of the whole job; None where nobody says it.
    """

    stall_s: float = 60.0
    idle_s: float | None = None
    deadline_s: float | None = None
    budget_usd: float | None = None
    num_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a watcher sees at one moment.

    Attributes:
        ranks: Processes that write.
        elapsed_s: Since the start.
        silent_s: Of each rank, since its last line.
        job: What was read out of the script; None where nothing was.
        expectation: What it should do; None where nothing is expected.
        limits: What is to be kept.
        signal: What came from outside and was passed on to the command; empty for nothing.
        gone: Of each rank, whether its process is no more.
    """

    ranks: Sequence[RankEvents]
    elapsed_s: float
    silent_s: Sequence[float]
    job: CapturedJob | None
    expectation: Expectation | None
    limits: Limits
    signal: str = ""
    gone: Sequence[bool] = ()


def notices(look: Look) -> Iterator[Notice]:
    """Everything that a moment gives cause to say."""
    training = [one for one in look.ranks if one.steps]
    recent = [(one, found) for one in training if (found := step_times(one.steps, is_recent=True))]
    slowest = max((found for _, found in recent), key=lambda found: found.step_s, default=None)
    yield from _fit(look)
    yield from _out_of_memory(look)
    yield from _interrupted(look)
    yield from _lost(look)
    yield from _stalled(look, slowest)
    yield from _diverging(training)
    if slowest is not None and _is_settled(slowest):
        starved = list(_starved(look, recent))
        yield from starved
        yield from [] if starved else _slow(look, slowest, recent)
        yield from _late(look, slowest)


def idle(idle_s: float, num_steps: int, *, is_gpu: bool) -> Notice:
    """A job whose device has done nothing for as long as the user allows.

    Args:
        idle_s: So long.
        num_steps: That it has done.
        is_gpu: Whether GPUs were looked at, and not cores.
    """
    what = "no GPU ran anything" if is_gpu else "its processes used no core"
    return Notice(
        kind="idle",
        step=num_steps + 1,
        text=f"idle for {format_duration(idle_s, 2)}: it is ended (SIGTERM), as --stop-idle says",
        evidence=f"{what}, and no step was done",
        remedy="`paceline runs show` says how far it was; a longer --stop-idle waits longer",
    )


def _is_settled(times: StepTimes) -> bool:
    return times.num_measured >= _LEAST_STEPS and times.num_measured * times.mean_s >= _LEAST_S


def _fit(look: Look) -> Iterator[Notice]:
    expected = look.expectation
    if expected is None or expected.memory_bytes is None or expected.capacity_bytes is None:
        return
    memory, capacity = expected.memory_bytes, expected.capacity_bytes
    if memory.mid <= capacity:
        return
    yield Notice(
        kind="fit",
        step=None,
        text=f"it will not fit: {format_bytes(memory.mid)} predicted, the device has "
        f"{format_bytes(capacity)}",
        evidence=f"{format_bytes(memory.low)} to {format_bytes(memory.high)}, from "
        f"{expected.source}",
        remedy=_smaller_batch(look),
    )


def _smaller_batch(look: Look) -> str:
    largest = None if look.expectation is None else look.expectation.largest_batch
    if not largest or look.job is None or largest >= look.job.batch:
        return "a smaller batch, gradient checkpointing or half precision need less"
    times = math.ceil(look.job.batch / largest)
    return f"batch {largest} fits: take it, and accumulate over {times} for the same step"


def _out_of_memory(look: Look) -> Iterator[Notice]:
    for rank in look.ranks:
        failed = rank.last("failure")
        if failed.get("is_out_of_memory"):
            yield Notice(
                kind="memory",
                step=len(rank.steps) + 1,
                text=f"rank {rank.rank} ran out of memory in {failed.get('phase', 'its step')} "
                f"of step {len(rank.steps) + 1}",
                evidence=_owners(look, rank, failed),
                remedy=_smaller_batch(look),
            )
            return


def _owners(look: Look, rank: RankEvents, failed: Mapping[str, Any]) -> str:
    parts = []
    held = rank.last("memory").get("reserved_bytes")
    if isinstance(held, int):
        parts.append(f"{format_bytes(held)} held before")
    expected = look.expectation
    if expected is not None and expected.memory_bytes is not None:
        weights, states = expected.parameter_bytes or 0.0, expected.optimizer_state_bytes or 0.0
        rest = max(0.0, expected.memory_bytes.mid - weights - states)
        parts.append(
            f"predicted: weights {format_bytes(weights)}, optimizer {format_bytes(states)}, "
            f"gradients, activations and the rest {format_bytes(rest)}"
        )
    parts.append(str(failed.get("message", "")).partition("\n")[0][:160])
    return " · ".join(filter(None, parts))


def _stalled(look: Look, slowest: StepTimes | None) -> Iterator[Notice]:
    usual_s = 0.0 if slowest is None else _SILENT_STEPS * slowest.mean_s
    limit_s = max(look.limits.stall_s, usual_s)
    where = [
        standing(rank, silent_s) for rank, silent_s in zip(look.ranks, look.silent_s, strict=True)
    ]
    alive = [one for one in where if not one.has_ended]
    gone = {one.rank for one, is_gone in zip(look.ranks, look.gone, strict=False) if is_gone}
    there = [one for one in alive if one.rank not in gone]
    if not there or not all(one.quiet_s >= limit_s for one in there):
        return
    ended = [one for one in where if one.has_ended and one.is_early(where)]
    guilty = ended or [one for one in alive if not one.is_waiting_for_others] or alive
    others = [one for one in where if one not in guilty]
    text = "; ".join(one.text for one in guilty)
    if others:
        text += f"; the others wait for it {others[0].place}"
    quiet_s = min(one.quiet_s for one in alive)
    yield Notice(
        kind="stalled",
        step=min(one.num_steps for one in where) + 1,
        text=f"stalled for {format_duration(quiet_s, 2)}: {text}",
        evidence="; ".join(f"rank {one.rank} at {one.line}" for one in where if one.line),
        remedy=guilty[0].remedy,
    )


def _interrupted(look: Look) -> Iterator[Notice]:
    if not look.signal:
        return
    done = max((len(one.steps) for one in look.ranks), default=0)
    yield Notice(
        kind="interruption",
        step=done + 1,
        text=f"{look.signal} came from outside: the place takes its machine back, or somebody ends "
        "the job",
        evidence="it was passed on to the command, which decides what it means",
        remedy="a script that saves on that signal loses nothing: `paceline.loop.resume` does",
    )


def _lost(look: Look) -> Iterator[Notice]:
    """A rank that is gone, killed or by a line of its own, while another failed for it."""
    failed = [
        one
        for one in look.ranks
        if (last := one.last("failure")) and not last.get("is_out_of_memory")
    ]
    lost = [
        one
        for one, is_gone in zip(look.ranks, look.gone, strict=False)
        if is_gone
        and (one.steps or one.world_size > 1)  # One that ends at once leaves its steps unwritten.
        and "failure" not in one.events
        and (not one.has_ended or _left_before(one, failed))
    ]
    if not failed or not lost:
        return
    names = ", ".join(map(_gone, lost))
    other = failed[0].last("failure")
    message = str(other.get("message", "")).partition("\n")[0][:160]
    yield Notice(
        kind="lost",
        step=len(lost[0].steps) + 1,
        text=f"{names}; rank {failed[0].rank} failed in {other.get('phase', 'its step')} for it",
        evidence=message,
        remedy="killed by the system (`dmesg` says so), ended by its own code, or its machine died",
    )


def _left_before(rank: RankEvents, failed: Sequence[RankEvents]) -> bool:
    """Whether a line of its own ended it before others failed, in no later step than theirs."""
    return bool(line_of_exit(rank)) and all(len(rank.steps) <= len(one.steps) for one in failed)


def _gone(rank: RankEvents) -> str:
    if line := line_of_exit(rank):
        return f"rank {rank.rank} ended itself after step {len(rank.steps)} ({line})"
    step = len(rank.steps) + 1
    return f"rank {rank.rank} is gone since step {step} or a little later, without a word"


def _diverging(training: Sequence[RankEvents]) -> Iterator[Notice]:
    for rank in training:
        recent = [row for row in rank.steps[-_RECENT_ROWS:] if row.losses]
        lost = 0
        for row in recent:
            lost = lost + 1 if any(not math.isfinite(loss) for loss in row.losses) else 0
            if lost < _NUM_LOST:
                continue
            step = rank.steps.index(row) + 1
            before = [x for r in recent for x in r.losses if math.isfinite(x)]
            last = f"the last number was {before[-1]:.4g}" if before else "it never was one"
            yield Notice(
                kind="diverging",
                step=step,
                text=f"the loss is no number since step {step - _NUM_LOST + 1}",
                evidence=f"rank {rank.rank}; {last}",
                remedy="stop it: `paceline runs stop`; then a lower learning rate, warm-up, "
                "gradient clipping, or bf16 in the place of fp16",
            )
            return


def _starved(look: Look, recent: _Recent) -> Iterator[Notice]:
    rank, times = max(recent, key=lambda one: one[1].wait_s / one[1].mean_s)
    of_rank = f" of rank {rank.rank}" * (rank.world_size > 1)
    waiting = times.wait_s / times.mean_s
    if waiting < _STARVED_FRAC or not _is_settled(times):
        return
    workers = None if look.job is None else look.job.num_workers
    busy_s = times.mean_s - times.wait_s
    if workers is None:
        remedy = "load ahead of the device: more loader workers, a faster decoder or storage"
    else:
        # Workers w deliver a batch every (load / w): as many more as keep up with the rest.
        load_s = times.mean_s * max(1, workers) if workers else times.wait_s
        wanted = max(workers + 1, math.ceil(load_s / max(busy_s, 1e-9)))
        remedy = (
            f"it has num_workers={workers}; about {wanted} would keep up, as far as there are "
            "cores; else less work per sample"
        )
    yield Notice(
        kind="starved",
        step=times.num_steps,
        text=f"waiting for input takes {waiting:.0%} of a step "
        f"({format_duration(times.wait_s)} of {format_duration(times.mean_s)})",
        evidence=f"{times.num_measured} steps{of_rank}; the device could do one in "
        f"{format_duration(busy_s)}",
        remedy=remedy,
    )


def _slow(look: Look, times: StepTimes, recent: _Recent) -> Iterator[Notice]:
    expected = look.expectation
    if expected is None or expected.step_s is None or times.low_s <= expected.step_s.high:
        return
    parts = {
        "waiting for input": times.wait_s, "forward": times.forward_s,
        "backward": times.backward_s, "the optimizer": times.update_s, "the rest": times.rest_s,
    }  # fmt: skip
    largest = max(parts, key=lambda name: parts[name])
    crowded = max((one.crowded_frac or 0.0 for one in look.ranks), default=0.0)
    remedy = "`paceline doctor` looks at the device; `paceline calibrate --run` learns from the run"
    if crowded > _CROWDED_FRAC:
        remedy = (
            f"it stood {crowded:.0%} of its time in line for a core: other programs run on this "
            "machine, or more threads than cores"
        )
    yield Notice(
        kind="slow",
        step=times.num_steps,
        text=f"{format_duration(times.step_s)} a step, "
        f"{pace_text(times.step_s / expected.step_s.mid)}, outside its interval",
        evidence=f"predicted {format_duration(expected.step_s.mid)} "
        f"({format_duration(expected.step_s.low)} to {format_duration(expected.step_s.high)}) from "
        f"{expected.source}; most of it is {largest} ({format_duration(parts[largest])})"
        f"{_behind(recent)}",
        remedy=remedy,
    )


def _behind(recent: _Recent) -> str:
    """The rank that comes to its backward pass last, where the others wait for it; or nothing."""
    ranks = [one for one, _ in recent if one.world_size > 1]
    before_s = [times.wait_s + times.forward_s for one, times in recent if one.world_size > 1]
    if len(ranks) < 2:
        return ""
    *others_s, last_s = sorted(before_s)
    usual_s = statistics.median(others_s)
    if last_s < _BEHIND * usual_s:
        return ""
    last = rank_names(ranks)[before_s.index(last_s)]
    return (
        f"; {last} comes to its backward pass after {format_duration(last_s)}, the others after "
        f"{format_duration(usual_s)}"
    )


def _late(look: Look, times: StepTimes) -> Iterator[Notice]:
    expected, limits = look.expectation, look.limits
    total = limits.num_steps or (expected.num_steps if expected else None)
    if total is None or total <= times.num_steps:
        return
    end_s = look.elapsed_s + (total - times.num_steps) * times.mean_s
    if limits.deadline_s is not None and end_s > limits.deadline_s:
        yield Notice(
            kind="deadline",
            step=times.num_steps,
            text=f"at this rate it ends after {format_duration(end_s)}, later than "
            f"{format_duration(limits.deadline_s)}",
            evidence=f"{total - times.num_steps:,} steps of {format_duration(times.mean_s)} to go",
            remedy="`paceline runs stop` ends it; `paceline plan --deadline … -- CMD` finds a "
            "faster place",
        )
    price = None if expected is None else expected.usd_per_hour
    if limits.budget_usd is not None and price and price * end_s / 3600 > limits.budget_usd:
        yield Notice(
            kind="budget",
            step=times.num_steps,
            text=f"at this rate it costs {format_usd(price * end_s / 3600)} USD, over the budget "
            f"of {format_usd(limits.budget_usd)}",
            evidence=f"{format_duration(end_s)} at {format_usd(price)} USD an hour",
            remedy="`paceline runs stop` ends it",
        )


__all__ = ["Limits", "Look", "Notice", "Standing", "notices"]
