"""Is the timing right? Against torch.utils.benchmark and timm's benchmark.py, interleaved.

    python benchmarks/measure_timing.py [ROUNDS] [CASE]

Rounds of A B C A B C: A is the loop of `paceline measure` (`execution/engines/engine.py`), B
is ``torch.utils.benchmark.Timer.blocked_autorange``, C the protocol of timm's ``benchmark.py`` with
its defaults, on the same model in the same process. Printed per model: the ratio of medians with
its 90 % interval over rounds, and what the harness adds to a step (time of the loop around a step
that does nothing, over the step).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

ROOT = Path(__file__).parents[1] / "src/paceline"
sys.path[:0] = [str(ROOT / "execution/engines"), str(ROOT / "frontends/torch")]

# The CUDA build of torchvision declares these in C++, which a CPU build of torch cannot load.
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float x) -> Tensor")

import engine  # noqa: E402
import timm  # noqa: E402
from torch_networks import zoo  # noqa: E402

Step = Callable[[], object]
SETTINGS = {
    "min_samples": 5, "max_samples": 1000, "max_s": 5.0, "max_warmup_s": 0.2,
    "min_sample_s": 0.005,
}  # fmt: skip
timm_resnet18 = partial(timm.create_model, "resnet18")
#: Model, input, whether it trains, and seconds of each turn.
CASES = {
    "mnist-cnn b8 forward": (zoo.MnistCnn, (8, 1, 28, 28), False, 0.2),
    "mnist-cnn b8 step": (zoo.MnistCnn, (8, 1, 28, 28), True, 0.2),
    "mnist-cnn b128 step": (zoo.MnistCnn, (128, 1, 28, 28), True, 0.8),
    "timm resnet18 b1 forward": (
        partial(timm.create_model, "resnet18"),
        (1, 3, 64, 64),
        False,
        0.2,
    ),
    "timm resnet18 b4 step": (timm_resnet18, (4, 3, 64, 64), True, 1.0),
}
#: What timm's script takes without options.
TIMM_WARM_STEPS, TIMM_STEPS = 10, 40


def main(num_rounds: int, part: str) -> None:
    """Print a line per model and peer."""
    torch.set_num_threads(1)
    peers = {"torch.utils.benchmark": theirs, "timm benchmark.py": timms}
    print(f"| case | against | ms/step | ratio | 90 % interval of {num_rounds} rounds | harness |")
    print("|---|---|--:|--:|--:|--:|")
    chosen = {name: case for name, case in CASES.items() if part in name}
    for name, (build, shape, is_training, seconds) in chosen.items():
        step = make_step(build(), torch.rand(shape), is_training=is_training)
        turns = [
            (ours(step, seconds), *(peer(step, seconds) for peer in peers.values()))
            for _ in range(num_rounds)
        ]
        added = ours(lambda: None, 0.2)
        for column, peer in enumerate(peers, start=1):
            report(name, peer, [(turn[0], turn[column]) for turn in turns], added)


def report(name: str, peer: str, pairs: Sequence[tuple[float, float]], added_s: float) -> None:
    """Print one line."""
    low, high = bootstrap(pairs)
    own_s, step_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"| {name} | {peer} | {1e3 * step_s:.3f} | {own_s / step_s:.3f} | {low:.3f}–{high:.3f} "
        f"| {100 * added_s / step_s:.3f} % |",
        flush=True,
    )


def make_step(model: torch.nn.Module, inputs: torch.Tensor, *, is_training: bool) -> Step:
    """A training step or a forward pass of the model."""
    model.train(is_training)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    targets = torch.zeros(len(inputs), dtype=torch.int64)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    return train if is_training else forward


def ours(step: Step, seconds: float) -> float:
    """Median step of our own loop."""
    settings = {**SETTINGS, "min_s": seconds}
    result = engine.time_steps(step, lambda: None, settings, lambda **event: None)
    return float(statistics.median(result["samples_s"]))


def theirs(step: Step, seconds: float) -> float:
    """Median step of PyTorch's timer."""
    timer = Timer(stmt="step()", globals={"step": step}, num_threads=1)
    return timer.blocked_autorange(min_run_time=seconds).median


def timms(step: Step, seconds: float) -> float:
    """Mean of so many steps, each timed alone, after so many unwatched ones.

    The protocol of ``benchmark.py`` in huggingface/pytorch-image-models, which its package leaves
    out.
    """
    del seconds
    for _ in range(TIMM_WARM_STEPS):
        step()
    total_s = 0.0
    for _ in range(TIMM_STEPS):
        begin = time.perf_counter()
        step()
        total_s += time.perf_counter() - begin
    return total_s / TIMM_STEPS


def bootstrap(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """90 % interval of the ratio of medians, rounds drawn as pairs."""
    generator = np.random.default_rng(0)
    values = np.array(pairs)
    chosen = values[generator.integers(0, len(values), size=(2000, len(values)))]
    ratios = np.median(chosen[:, :, 0], axis=1) / np.median(chosen[:, :, 1], axis=1)
    low, high = np.percentile(ratios, [5, 95]).tolist()
    return low, high


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40, " ".join(sys.argv[2:]))
