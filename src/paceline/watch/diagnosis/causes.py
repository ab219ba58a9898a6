"""Why a script is slow, and what each remedy gains: from what was tried in it, the best first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from paceline.planfile import Interval
from paceline.units import format_duration, format_percent
from paceline.values import dataclass
from paceline.watch.diagnosis.blocks import STANDARD_ERRORS, Block, Found
from paceline.watch.observer.doubt import reference_of

KnownBy = Literal["tried", "predicted"]
#: Gains from which a remedy is worth a word.
_LEAST_GAIN = 1.03
#: What needs code to be written is named after a setting that gives nearly as much.
_WORK_FACTOR = 1.15
#: Share of what waiting costs that other workers must win to be its remedy.
_CLOSED_FRAC = 0.4
#: Share of a step in waiting, or lost by input, from which input is looked at.
_WAIT_FRAC = 0.04
#: Share of making a batch from which a part of it is named.
_PART_FRAC = 0.25
#: Share of a step that making its batch takes, per worker, where that is what is waited for.
_MAKES_FRAC = 0.1
#: Steps of a log, of a save, where each step has one now.
_LOG_EVERY, _SAVE_EVERY = 50, 500
#: Of a statement's time, how far the prediction may be off.
_LINE_ERROR = 0.2
#: How much slower than the others a rank is that is called slow.
_SLOW_RANK = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that makes a step longer than it need be.

    Attributes:
        kind: Short name, such as ``no-workers``.
        text: What is seen, with its numbers.
        remedy: What to change.
        step_s: A step of as many samples once it is changed.
        gain: As it is, over that.
        known_by: Whether the change was tried in the script, or is predicted from measured parts.
        changes_training: Whether the change alters numbers, and not time alone.
        is_work: Whether code has to be written, and not a setting changed.
    """

    kind: str
    text: str
    remedy: str
    step_s: Interval
    gain: float
    known_by: KnownBy
    changes_training: bool = False
    is_work: bool = False


def ranked_causes(found: Found) -> tuple[Cause, ...]:
    """What would help: first what changes time alone, then what changes numbers; best first."""
    every = [one for look in _LOOKS for one in look(found)]
    kept = [one for one in every if one.gain >= _LEAST_GAIN and one.step_s.high < _own_s(found)]
    return tuple(sorted(kept, key=_order))


def without_gain(found: Found) -> tuple[str, ...]:
    """What was tried and helps nothing, in words."""
    kinds = {one.kind for one in ranked_causes(found)}
    helped = [name for name, shown in _TRIED.items() if shown & kinds]
    tried = dict.fromkeys(one.name for one in found.blocks)
    return tuple(
        words(name)
        for name in tried
        if any(name.startswith(one) for one in _TRIED)
        if not any(name.startswith(one) for one in helped)
    )


def _order(cause: Cause) -> tuple[bool, float]:
    return cause.changes_training, cause.step_s.mid * (_WORK_FACTOR if cause.is_work else 1.0)


#: How names of trials begin, and the causes that they show.
_TRIED: Mapping[str, frozenset[str]] = {
    "workers": frozenset({"no-workers", "few-workers", "too-many-workers"}),
    "persistent": frozenset({"workers-restart"}),
    "threads": frozenset({"threads"}),
    "batch": frozenset({"small-batch"}),
    "bf16": frozenset({"fp32"}),
    "tf32": frozenset({"no-tensor-cores"}),
    "pinned": frozenset({"pageable-copies"}),
    "fp32": frozenset({"fp64"}),
    "frozen": frozenset({"needless-gradients"}),
    "all used": frozenset({"finds-unused"}),
    "no saves": frozenset({"saves"}),
    "collate": frozenset({"slow-collate"}),
    "read again": frozenset({"cold-reads"}),
    "accumulate": frozenset({"all-reduce"}),
}


def words(name: str) -> str:
    """What was tried, as printed.

    >>> words("workers 2")
    'num_workers=2'
    """
    what, _, number = name.partition(" ")
    plain = {
        "bf16": "autocast bf16", "tf32": "TF32", "pinned": "pin_memory=True",
        "all used": "find_unused_parameters=False",
        "persistent": "persistent_workers=True", "no saves": "no saves",
        "collate": "default collate", "read again": "samples that were read before",
        "frozen": "requires_grad_(False)", "fp32": "FP32",
    }  # fmt: skip
    if name in plain:
        return plain[name]
    if what == "workers":
        workers, _, stays = number.partition(" ")
        return f"num_workers={workers}" + (", persistent_workers=True" if stays else "")
    times = {"accumulate": "accumulation over "}
    return times.get(what, what + " ") + number.replace("x", "× ")


def _own_s(found: Found) -> float:
    return found.step_s("own")


def _tried(
    found: Found, name: str, kind: str, text: str, remedy: str, **more: Any
) -> Iterator[Cause]:
    """A cause whose remedy was tried, beside the script as it is or one batch again and again."""
    share = found.share(name)
    if share is None:
        return
    beside = reference_of(name)
    base_s = found.step_s(beside)
    # Making a sample takes what it takes in a larger batch, too.
    rest_s = _gap_s(found) if beside == "replay" and _is_starved(found) else 0.0
    promised = Interval(
        low=rest_s + base_s * share.low, mid=rest_s + base_s * share.mid,
        high=rest_s + base_s * share.high,
    )  # fmt: skip
    yield _cause(found, kind, text, remedy, promised, "tried", **more)


def _cause(
    found: Found, kind: str, text: str, remedy: str, step_s: Interval, known_by: KnownBy,
    **more: bool,
) -> Cause:  # fmt: skip
    gain = _own_s(found) / step_s.mid if step_s.mid > 0 else float("inf")
    return Cause(
        kind=kind, text=text, remedy=remedy, step_s=step_s, gain=gain, known_by=known_by, **more
    )


def _less(found: Found, saved_s: float, doubt_s: float = 0.0) -> Interval:
    """A step without so many seconds of it; at least ``doubt_s`` in doubt."""
    own_s = _own_s(found)
    error_s = max(_LINE_ERROR * saved_s, doubt_s)
    rest_s = max(0.02 * own_s, own_s - saved_s)
    return Interval(low=max(0.0, rest_s - error_s), mid=rest_s, high=min(own_s, rest_s + error_s))


def _is_starved(found: Found) -> bool:
    """Whether input takes a part of a step that is no chance."""
    if _gap_s(found) <= _WAIT_FRAC * _own_s(found):
        return False
    there = found.share("replay")
    return _waits(found) or (there is not None and there.high < 1.0)


def _waits(found: Found) -> bool:
    """Whether the training process stands still for its batches, or makes them."""
    return _wait_s(found) > _WAIT_FRAC * _own_s(found)


def _wait_s(found: Found) -> float:
    return statistics.median(one.wait_s for one in found.named("own"))


def _gap_s(found: Found) -> float:
    """What a step loses by its input.

    Without workers that is what the script is seen to wait; with them it is a step as it is, less
    one with batches that are there, for they also take its cores.
    """
    if found.facts.get("num_workers") == 0:
        return _wait_s(found)
    return _own_s(found) - found.step_s("replay")


def _loaders(found: Found) -> Iterator[Cause]:
    """Other numbers of workers."""
    now = found.facts.get("num_workers")
    names = [
        one for one in dict.fromkeys(b.name for b in found.blocks) if one.startswith("workers")
    ]
    ratios = {one: ratio for one in names if (ratio := found.share(one)) is not None}
    if not ratios or now is None or not _is_starved(found):
        return
    best = _fewest(ratios)
    workers, own_s = int(best.split()[1]), _own_s(found)
    gained_s = own_s * (1.0 - ratios[best].mid)
    if gained_s < _CLOSED_FRAC * _gap_s(found):
        return
    wait = format_percent(_gap_s(found) / own_s)
    remedy = words(best)
    if now == 0:
        text = f"no loader workers: input takes {wait} of a step, in the training process itself"
        yield from _tried(found, best, "no-workers", text, remedy)
    elif workers > now:
        if not _waits(found):
            return  # More of them win nothing where nothing waits for them.
        text = f"{now} loader workers deliver too little: input takes {wait} of a step"
        yield from _tried(found, best, "few-workers", text, remedy)
    else:
        cores = found.facts.get("num_cores", 1)
        text = f"{now} loader workers on {cores} cores cost {wait} of a step"
        yield from _tried(found, best, "too-many-workers", text, remedy)


def _fewest(ratios: Mapping[str, Interval]) -> str:
    """The fewest workers that do nearly as well as the best number."""
    best = min(one.mid for one in ratios.values())
    good = [name for name, one in ratios.items() if one.mid <= 1.03 * best]
    return min(good, key=lambda name: int(name.split()[1]))


def _restarts(found: Found) -> Iterator[Cause]:
    steps = found.facts.get("epoch_steps")
    now = found.facts.get("num_workers")
    if any(one.kind == "too-many-workers" for one in _loaders(found)):
        return  # Fewer of them, which stay, are the remedy of both.
    text = f"{now} loader workers are started anew every {steps} steps"
    kind = "workers-restart"
    yield from _tried(found, "persistent", kind, text, "persistent_workers=True")


def _samples(found: Found) -> Iterator[Cause]:
    """Work on a sample, reading it, and making a batch of samples."""
    cost = found.probes.get("batch", {})
    if not _is_starved(found) or not cost.get("has_indices"):
        return
    sample_s, collate_s = float(cost["sample_s"]), float(cost["collate_s"])
    whole_s = sample_s + collate_s
    workers = max(1, int(found.facts.get("num_workers") or 0))
    if whole_s < _MAKES_FRAC * workers * _own_s(found):
        return  # What makes it wait is not that batches take long to make.
    cold_s = max(0.0, sample_s - float(cost["again_s"]))
    blocked_s = sample_s - float(cost["sample_cpu_s"])
    cold_s = cold_s if blocked_s > 0.4 * cold_s else 0.0
    if cold_s > _PART_FRAC * whole_s:
        text = (
            f"reading samples for the first time takes {format_duration(cold_s)} a batch longer "
            f"than reading them again, {format_percent(cold_s / whole_s)} of making it"
        )
        remedy = "keep the data in memory or on a faster disk, smaller, or read ahead"
        yield from _tried(found, "read again", "cold-reads", text, remedy)
    if collate_s > _PART_FRAC * whole_s:
        is_own = cost.get("is_own_collate", True)
        who = "collate_fn" if is_own else "collating"
        text = (
            f"{who} takes {format_duration(collate_s)} a batch, "
            f"{format_percent(collate_s / whole_s)} of making it"
        )
        if found.named("collate"):
            remedy = "leave collate_fn out: PyTorch's own gives the same batch"
            yield from _tried(found, "collate", "slow-collate", text, remedy)
        else:
            remedy = (
                "stack whole arrays in collate_fn, without a loop over elements"
                if is_own
                else "cut whole batches out of one array: `__getitems__`, and nothing to collate"
            )
            yield _without_part(found, "slow-collate", text, remedy, collate_s, whole_s)
    warm_s = sample_s - cold_s
    yield from _sample_work(found, cost, warm_s, whole_s)


def _sample_work(
    found: Found, cost: Mapping[str, Any], sample_s: float, whole_s: float
) -> Iterator[Cause]:
    lines = cost.get("lines") or []
    total_ns = sum(one["own_ns"] for one in lines)
    if sample_s <= _PART_FRAC * whole_s:
        return
    worst = max(lines, key=lambda one: float(one["own_ns"]), default=None)
    share = worst["own_ns"] / total_ns if worst is not None and total_ns > 0 else 1.0
    part_s = share * sample_s
    where = f"`{worst['text']}` ({_place(worst)})" if worst is not None else "a sample"
    text = (
        f"{where} takes {format_duration(part_s)} a batch, {format_percent(part_s / whole_s)} of "
        "making it"
    )
    remedy = "do it once beforehand, or for a whole batch at once, or with a faster library"
    yield _without_part(found, "slow-samples", text, remedy, part_s, whole_s)


def _without_part(
    found: Found,
    kind: str,
    text: str,
    remedy: str,
    part_s: float,
    whole_s: float,
) -> Cause:
    """A step once a part of making a batch costs nothing, down to what the device takes.

    Workers that are waited for set the pace. Those that keep up, or none, cost what a step loses
    beside batches that are there: the cores that they take of it.
    """
    own_s, device_s = _own_s(found), found.step_s("replay")
    workers = found.facts.get("num_workers")
    if free := found.named("free samples"):
        # Batches of samples that cost nothing are still put together and handed over.
        device_s = max(device_s, min(one.step_s for one in free))
    if workers and _waits(found):
        rest_s = max(device_s, own_s * (1.0 - part_s / whole_s))
    else:
        rest_s = max(device_s, own_s - _gap_s(found) * part_s / whole_s)
    bound = found.share("free samples") or (found.share("replay") if workers else None)
    doubt_frac = 0.0 if bound is None else bound.high - bound.mid
    error_s = max(_LINE_ERROR * (own_s - rest_s), own_s * doubt_frac)
    promised = Interval(low=max(device_s, rest_s - error_s), mid=rest_s, high=rest_s + error_s)
    return _cause(found, kind, text, remedy, promised, "predicted", is_work=True)


_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_COPIES = frozenset(
    {"to", "cuda", "clone", "tensor", "as_tensor", "from_numpy", "copy_", "stack", "cat", "Tensor"}
)
_LOGS = frozenset(
    {
        "print", "write", "log", "info", "debug", "warning", "add_scalar", "add_scalars",
        "add_histogram", "add_image", "log_dict", "log_metrics", "writerow", "flush", "fsync",
        "dumps", "dump", "savefig", "histc", "histogram",
    }
)  # fmt: skip
_SAVES = frozenset(
    {"save", "save_file", "save_pretrained", "save_checkpoint", "savez", "save_state"}
)


def _making(found: Found) -> Iterator[Cause]:
    """What a loop without a loader does before its model, to have a batch."""
    worst = _batch_maker(found)
    if worst is None:
        return
    saved_s = _of_host(found, float(worst["own_s"]))
    text = f"`{worst['text']}` ({_place(worst)}) takes {format_duration(saved_s)} of each step"
    remedy = "make batches beforehand, or in the workers of a DataLoader"
    less = _less(found, saved_s)
    yield _cause(found, "slow-batches", text, remedy, less, "predicted", is_work=True)


def _batch_maker(found: Found) -> Mapping[str, Any] | None:
    """Of a loop without a loader, the longest statement before the model is called."""
    before = [one for one in found.lines if one["is_before"] and found.facts.get("is_unfed")]
    return max(before, key=lambda one: float(one["own_s"]), default=None)


def _of_host(found: Found, seconds: float) -> float:
    """What is won without so many seconds of the host: on a GPU what that stands idle, at most."""
    return seconds if found.gpu is None else min(seconds, _host_s(found))


def _statements(found: Found) -> Iterator[Cause]:
    """What the script does in a step beside its model, backward and the update."""
    for one in found.lines:
        if one is _batch_maker(found):
            continue
        saved_s = _of_host(found, float(one["own_s"]))
        calls = frozenset(one["calls"])
        where = f"`{one['text']}` ({_place(one)}) takes {format_duration(saved_s)} of each step"
        if calls & _SAVES:
            if not found.named("no saves"):
                remedy = f"save every {_SAVE_EVERY} steps"
                less = _less(found, saved_s * (1 - 1 / _SAVE_EVERY))
                yield _cause(found, "saves", where, remedy, less, "predicted", is_work=True)
        elif calls & _LOGS:
            remedy = f"log every {_LOG_EVERY} steps"
            less = _less(found, saved_s * (1 - 1 / _LOG_EVERY))
            yield _cause(found, "logging", where, remedy, less, "predicted", is_work=True)
        elif one["has_loop"] and not one["away_ns"]:
            kind, remedy = _of_loop(one, calls)
            yield _cause(
                found, kind, where, remedy, _less(found, saved_s), "predicted", is_work=True
            )


def _of_loop(one: Mapping[str, Any], calls: frozenset[str]) -> tuple[str, str]:
    if one["is_before"] and calls & _COPIES:
        return "sample-copies", "copy the whole batch at once, not sample by sample"
    if calls & _READS:
        return "item", "compute it with tensors for the whole batch, and read one number"
    if calls & _COPIES:
        return "sample-copies", "copy the whole batch at once, not sample by sample"
    return "own-loop", "compute it with tensors for the whole batch, or less often"


def _place(one: Mapping[str, Any]) -> str:
    end = f"–{one['end']}" if one["end"] > one["line"] else ""
    return f"{one['file']}:{one['line']}{end}"


def _settings(found: Found) -> Iterator[Cause]:
    """Settings that were tried beside the script as it is."""
    facts = found.facts
    saves = max((one.saves for one in found.named("own")), default=0.0)
    yield from _tried(
        found, "no saves", "saves", f"it saves {saves:.2g} times a step",
        f"save every {_SAVE_EVERY} steps", is_work=True,
    )  # fmt: skip
    yield from _tried(
        found, "frozen", "needless-gradients",
        f"{facts.get('num_frozen')} parameters get gradients that no optimizer uses",
        "requires_grad_(False) for what is not trained",
    )  # fmt: skip
    yield from _tried(
        found, "all used", "finds-unused", "DDP looks for unused parameters, and there are none",
        "find_unused_parameters=False",
    )  # fmt: skip
    yield from _tried(
        found, "fp32", "fp64", "it computes in FP64", "FP32: model.float(), data as float32",
        changes_training=True,
    )  # fmt: skip
    yield from _tried(
        found, "tf32", "no-tensor-cores", "it multiplies FP32 without tensor cores",
        'torch.set_float32_matmul_precision("high")', changes_training=True,
    )  # fmt: skip
    yield from _tried(
        found, "bf16", "fp32", "it computes in FP32", "torch.autocast with bfloat16",
        changes_training=True,
    )  # fmt: skip


def _gpu(found: Found) -> Iterator[Cause]:
    """What keeps a GPU from its kernels: the host, copies, other GPUs."""
    gpu = found.gpu
    if gpu is None:
        return
    yield from _tried(
        found, "pinned", "pageable-copies",
        f"batches are copied from memory that is not pinned: {format_duration(gpu.pageable_s)} "
        "of a step", 'pin_memory=True, and .to("cuda", non_blocking=True)',
    )  # fmt: skip
    host_s = _host_s(found)
    if host_s > 0:
        waits = f" and waits for it {gpu.num_waits:.2g} times" if gpu.num_waits > 0.5 else ""
        text = (
            f"the GPU does nothing for {format_duration(host_s)} of a step while the host works: "
            f"it starts {gpu.num_launches:.0f} kernels in each{waits}"
        )
        remedy = 'torch.compile(mode="reduce-overhead"), or larger batches'
        yield _cause(
            found, "host-bound", text, remedy, _less(found, host_s), "predicted", is_work=True
        )
    if gpu.communication_s > 0 and not found.named("no sync"):
        text = f"GPUs wait for {format_duration(gpu.communication_s)} of a step for each other"
        remedy = "accumulate over more batches, or reduce in larger buckets beside backward"
        yield _cause(
            found, "communication", text, remedy, _less(found, gpu.communication_s), "predicted",
            is_work=True,
        )  # fmt: skip
    copies_s = gpu.copies_s
    if found.facts.get("pinned") and copies_s > 0:
        text = f"copies from and to the host take {format_duration(copies_s)} that nothing hides"
        remedy = "copy the next batch on a stream of its own, or send smaller numbers (uint8)"
        yield _cause(
            found, "copies", text, remedy, _less(found, copies_s), "predicted", is_work=True
        )


def _host_s(found: Found) -> float:
    """Of a step, how long its GPU does nothing though the batch is there; 0.0 without a GPU."""
    if found.gpu is None:
        return 0.0
    # A profiler makes the host slower, and not the GPU: what that does takes as long without.
    idle_s = _own_s(found) - (found.gpu.step_s - found.gpu.idle_s)
    return max(0.0, idle_s - max(0.0, _gap_s(found) if found.named("replay") else 0.0))


def _threads(found: Found) -> Iterator[Cause]:
    facts = found.facts
    names = [
        one for one in dict.fromkeys(b.name for b in found.blocks) if one.startswith("threads")
    ]
    ratios = {one: ratio for one in names if (ratio := found.share(one)) is not None}
    if not ratios:
        return
    fastest = min(one.mid for one in ratios.values())
    best = next(name for name, one in ratios.items() if one.mid <= 1.1 * fastest)
    number = best.split()[1]
    ranks = facts.get("world_size", 1)
    beside = f" in each of {ranks} ranks" if ranks > 1 else ""
    text = f"{facts.get('num_threads')} threads{beside} on {facts.get('num_cores')} cores"
    remedy = f"torch.set_num_threads({number}), or OMP_NUM_THREADS={number}"
    yield from _tried(found, best, "threads", text, remedy)


def _batches(found: Found) -> Iterator[Cause]:
    """Larger batches: the fewest samples that do nearly as well as the best."""
    names = [one for one in dict.fromkeys(b.name for b in found.blocks) if one.startswith("batch")]
    ratios = {one: ratio for one in names if (ratio := found.share(one)) is not None}
    if not ratios or found.facts.get("world_size", 1) > 1:
        return
    best = min(one.mid for one in ratios.values())
    name = next(one for one in names if one in ratios and ratios[one].mid <= 1.1 * best)
    times, batch = int(name.partition("x")[2]), int(found.facts["batch"])
    text = f"a batch of {batch} is small: most of a step is overhead"
    remedy = f"batch {times * batch} (the step is that of {batch} samples in it)"
    yield from _tried(found, name, "small-batch", text, remedy, changes_training=True)


def _ranks(found: Found) -> Iterator[Cause]:
    """A rank that is slower than the others, and what the all-reduce takes."""
    free = found.named("no sync")
    if not free:
        return
    by_rank = [
        statistics.median([one.by_rank_s[rank] for one in free])
        for rank in range(len(free[0].by_rank_s))
    ]
    slow_s, own_s = max(by_rank), _own_s(found)
    others_s = statistics.median(sorted(by_rank)[:-1])
    if slow_s > _SLOW_RANK * others_s:
        rank = by_rank.index(slow_s)
        name = found.ranks[rank]
        text = (
            f"{name} takes {format_duration(slow_s)} a step by itself, the others "
            f"{format_duration(others_s)}: they wait for it"
        )
        remedy = f"look at {name}: its data, its cores, its device"
        others = [b.by_rank_s[:rank] + b.by_rank_s[rank + 1 :] for b in free]
        later_s = [
            b.by_rank_s[rank] - statistics.median(rest)
            for b, rest in zip(free, others, strict=True)
        ]
        share = found.share("no sync")
        chance_s = 0.0 if share is None else own_s * (share.high - share.mid)
        # No step is shorter than what the others take by themselves.
        gained_s = min(slow_s, own_s) - others_s
        promised = _less(found, gained_s, doubt_s=max(chance_s, _doubt(later_s)))
        yield _cause(found, "slow-rank", text, remedy, promised, "predicted", is_work=True)
    comm_s = own_s - slow_s
    if comm_s > 0:
        text = f"the all-reduce takes {format_duration(comm_s)} of each step that nothing hides"
        for name in dict.fromkeys(b.name for b in found.blocks):
            what, _, number = name.partition(" ")
            if what == "accumulate":
                remedy = f"accumulate over {number} batches, no_sync() in all but the last"
                yield from _tried(found, name, "all-reduce", text, remedy, changes_training=True)


def _doubt(values: Sequence[float]) -> float:
    """How far their mean may be off, by how they differ."""
    if len(values) < 2:
        return 0.0
    return STANDARD_ERRORS * statistics.stdev(values) / math.sqrt(len(values))


_LOOKS: Sequence[Callable[[Found], Iterator[Cause]]] = (
    _loaders, _restarts, _samples, _making, _statements, _settings, _gpu, _threads, _batches,
    _ranks,
)  # fmt: skip

__all__ = ["Block", "Cause", "ranked_causes", "without_gain", "words"]
