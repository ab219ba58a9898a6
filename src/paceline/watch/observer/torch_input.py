"""What a loader delivers by itself, and what one batch of it costs.

Standard library and torch only; runs in the user's Python.
"""

import itertools
import sys
import time

import _paceline_observer as observer

clock = time.perf_counter_ns
_NUM_BATCHES = 3
_NUM_FREE = 64


def drained(feed, num_skipped, limit_s):
    """Batches that are taken one after the other, and the time they take.

    Args:
        feed: Where they come from.
        num_skipped: Batches that were loaded ahead: they cost nothing now.
        limit_s: When to stop.
    """
    until = time.monotonic() + 2 * limit_s
    for _ in range(num_skipped):
        feed.next()
        if time.monotonic() > until:
            break
    began, taken = time.monotonic(), 0
    while time.monotonic() < began + limit_s or taken < 2:
        feed.next()
        taken += 1
    return {"seconds": time.monotonic() - began, "num_batches": taken}


def cost_of_a_batch(torch, loader):
    """Seconds of samples and of collating, each by the clock and of CPU; and again, read before.

    None where samples have no indices.
    """
    sampler = loader.batch_sampler
    if sampler is None or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return {"has_indices": False}
    dataset, collate = loader.dataset, loader.collate_fn
    inside = observer.load("torch_lines")
    lines = inside.Lines(torch)
    found = {"has_indices": True, "sample_s": 0.0, "sample_cpu_s": 0.0, "again_s": 0.0}
    found["collate_s"] = 0.0
    is_default = collate is not torch.utils.data.default_collate
    found["is_own_collate"] = is_default
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    batches = iter(sampler)
    num = 0
    for number in range(_NUM_BATCHES):
        indices = next(batches, None)
        if indices is None:
            break
        num += 1
        samples, wall_s, cpu_s = _timed(lambda indices=indices: _fetched(dataset, indices))
        found["sample_s"] += wall_s
        found["sample_cpu_s"] += cpu_s
        found["again_s"] += _timed(lambda indices=indices: _fetched(dataset, indices))[1]
        batch, wall_s, _ = _timed(lambda samples=samples: collate(samples))
        found["collate_s"] += wall_s
        if number == 0 and is_default:
            is_default = _is_same(torch, batch, samples)
        _trace(lines, dataset, indices)
        if number == 0:
            lines.settle()
    torch.set_num_threads(before)
    times = {key: value / max(1, num) for key, value in found.items() if key.endswith("_s")}
    found.update(times, is_default_collate=is_default)
    found["lines"] = inside.statements(lines, inside.cost_of_a_line())
    return found


def _timed(call):
    wall, cpu = clock(), time.thread_time_ns()
    value = call()
    return value, (clock() - wall) / 1e9, (time.thread_time_ns() - cpu) / 1e9


def _fetched(dataset, indices):
    many = getattr(dataset, "__getitems__", None)
    return many(list(indices)) if many else [dataset[i] for i in indices]


def _trace(lines, dataset, indices):
    sys.settrace(lines._call)
    try:
        _fetched(dataset, list(indices)[:8])
    finally:
        sys.settrace(None)


def _is_same(torch, batch, samples):
    """Whether PyTorch's own collating makes the same batch."""
    try:
        other = torch.utils.data.default_collate(samples)
    except Exception:  # noqa: BLE001  It refuses what it does not know.
        return False
    return _equal(torch, batch, other)


def _equal(torch, one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and one.equal(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(torch, one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(lambda a, b: _equal(torch, a, b), one, other))
    return one == other


class FewBatches:
    """Indices of the first few batches of a sampler, as many times as it has batches."""

    def __init__(self, sampler):
        self.batches = list(itertools.islice(sampler, _NUM_BATCHES))
        self.length = observer.quietly(len, sampler) or sys.maxsize

    def __len__(self):
        return self.length

    def __iter__(self):
        return itertools.islice(itertools.cycle(self.batches), self.length)


class FreeSamples:
    """A dataset whose samples cost nothing: a few of them, made once."""

    def __init__(self, dataset, loader):
        indices = next(iter(loader.batch_sampler))
        self.samples = _fetched(dataset, list(indices)[:_NUM_FREE])
        self.length = len(dataset)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.samples[hash(index) % len(self.samples)]
