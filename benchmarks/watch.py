"""What the observer costs a training loop: blocks of steps with it and without, by turns.

``python benchmarks/watch.py`` prints a table. One watched process takes its marks out and puts them
in again for each block, so that both kinds of block meet the same caches and the same neighbours on
a crowded machine. A step is that of a small layer, with CPU time spent after it to some length. The
cost is CPU time of the process, and what the writing thread would do is done and timed within the
block.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.watch.command import observed_environment
from paceline.watch.folder import Run

_NUM_ROUNDS = 60
#: Time spent after each step, and steps of a block.
_KINDS = ((0.0, 400), (0.005, 100))
_LOOP = "loop"


@contextmanager
def without_marks() -> Iterator[None]:
    """Inside, nothing of the observer is called."""
    import torch
    from torch.optim import optimizer
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    hooks = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
    kept = [dict(one) for one in hooks]
    marked, properties = torch.autograd._make_grads, {}
    for one in hooks:
        one.clear()
    torch.autograd._make_grads = marked.__closure__[_place_of("plain", marked)].cell_contents
    for name in ("_profile_name", "_num_yielded"):
        properties[name] = _BaseDataLoaderIter.__dict__[name]
        delattr(_BaseDataLoaderIter, name)
    _BaseDataLoaderIter._num_yielded = sys.modules["_paceline_torch_steps"]._Plain()
    try:
        yield
    finally:
        for one, before in zip(hooks, kept, strict=True):
            one.update(before)
        torch.autograd._make_grads = marked
        for name, value in properties.items():
            setattr(_BaseDataLoaderIter, name, value)


def _place_of(name, function) -> int:
    return function.__code__.co_freevars.index(name)


def loop(filler_s: float, num_steps: int, num_rounds: int) -> None:
    """Print CPU seconds of a step without and with marks, a line per round."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    num_blocks = 2 * num_rounds + 2
    data = iter(
        DataLoader(TensorDataset(torch.randn(8 * num_steps * num_blocks, 64)), batch_size=8)
    )

    def block(log) -> float:
        """CPU seconds of a step."""
        began_s = time.process_time()
        for _ in range(num_steps):
            (x,) = next(data)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            end_s = time.thread_time() + filler_s
            while time.thread_time() < end_s:
                pass
        if log is not None:
            log.flush()
        return (time.process_time() - began_s) / num_steps

    block(None)
    log = next(one for one in _logs() if one.is_started)
    for number in range(num_rounds):
        found = {}
        for is_watched in (False, True) if number % 2 else (True, False):
            if is_watched:
                found[True] = block(log)
            else:
                with without_marks():
                    found[False] = block(None)
        print(found[False], found[True])


def _logs():
    import gc

    kind = sys.modules["_paceline_observer"].Log
    return [one for one in gc.get_objects() if type(one) is kind]


def compare(filler_s: float, num_steps: int) -> str:
    """A row: what a step takes without, how much more it takes, the ratio with its interval."""
    words = (sys.executable, __file__, _LOOP, str(filler_s), str(num_steps), str(_NUM_ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        run = Run(id="cost", folder=Path(folder), command=words, started_at="")
        environment = observed_environment(run, dict(os.environ, OMP_NUM_THREADS="1"))
        done = subprocess.run(words, env=environment, capture_output=True, check=True, text=True)
    pairs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    ratios = [watched / plain for plain, watched in pairs]
    extra_us = [1e6 * (watched - plain) for plain, watched in pairs]
    plain_ms = 1e3 * statistics.median(plain for plain, _ in pairs)
    (low, high), (least, most) = _interval(ratios), _interval(extra_us)
    return (
        f"| {plain_ms:.3f} | {len(pairs)} | {statistics.median(extra_us):.1f} ({least:.1f} to "
        f"{most:.1f}) | {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f}) |"
    )


def _interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the median, by drawing again."""
    chance = random.Random(0)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(4000))
    return drawn[100], drawn[3900]


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == [_LOOP]:
        loop(float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    print("| step without, ms of CPU | rounds | more with it, µs | ratio |")
    print("|---|---|---|---|")
    for filler_s, num_steps in _KINDS:
        print(compare(filler_s, num_steps), flush=True)


if __name__ == "__main__":
    main()
