"""Is the timing right? Against torch.utils.benchmark, and against a plain loop, interleaved.

    python benchmarks/measure_timing.py [ROUNDS]

Rounds of A B A B: A is the loop of `paceline measure` (src/paceline/run/workers/engine.py), B is
``torch.utils.benchmark.Timer.blocked_autorange``, on the same model in the same process. Printed
per model: the ratio of medians with its 90 % interval over rounds, and what the harness adds to a
step (time of the loop around a step that does nothing, over the step).
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

ROOT = Path(__file__).parents[1] / "src/paceline"
sys.path[:0] = [str(ROOT / "run/workers"), str(ROOT / "trace/workers")]

import engine  # noqa: E402
import torch_models  # noqa: E402

SETTINGS = {
    "min_samples": 5, "max_samples": 1000, "max_s": 5.0, "max_warmup_s": 0.2,
    "min_sample_s": 0.005,
}  # fmt: skip
#: Model, input, whether it trains, and seconds of each turn.
CASES = {
    "mnist-cnn b8 forward": (torch_models.MnistCnn, (8, 1, 28, 28), False, 0.2),
    "mnist-cnn b8 step": (torch_models.MnistCnn, (8, 1, 28, 28), True, 0.2),
    "mnist-cnn b128 step": (torch_models.MnistCnn, (128, 1, 28, 28), True, 0.8),
    "resnet18 b1 forward": (
        torch_models.torchvision_classifier("resnet18"),
        (1, 3, 64, 64),
        False,
        0.2,
    ),
}


def main(num_rounds: int) -> None:
    torch.set_num_threads(1)
    print(f"| case | ms/step | ratio | 90 % interval of {num_rounds} rounds | harness |")
    print("|---|--:|--:|--:|--:|")
    for name, (build, shape, is_training, seconds) in CASES.items():
        step = make_step(build(), torch.rand(shape), is_training=is_training)
        pairs = [(ours(step, seconds), theirs(step, seconds)) for _ in range(num_rounds)]
        ratios = np.array([a / b for a, b in pairs])
        low, high = bootstrap(pairs)
        step_s = statistics.median(b for _, b in pairs)
        added = ours(lambda: None, 0.2) / step_s
        print(
            f"| {name} | {1e3 * step_s:.3f} | {np.median(ratios):.3f} | {low:.3f}–{high:.3f} "
            f"| {100 * added:.3f} % |",
            flush=True,
        )


def make_step(model, inputs, *, is_training):
    model.train(is_training)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    targets = torch.zeros(len(inputs), dtype=torch.int64)

    def train():
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    def forward():
        with torch.no_grad():
            model(inputs)

    return train if is_training else forward


def ours(step, seconds) -> float:
    settings = {**SETTINGS, "min_s": seconds}
    result = engine.time_steps(step, lambda: None, settings, lambda **event: None)
    return statistics.median(result["samples_s"])


def theirs(step, seconds) -> float:
    timer = Timer(stmt="step()", globals={"step": step}, num_threads=1)
    return timer.blocked_autorange(min_run_time=seconds).median


def bootstrap(pairs) -> tuple[float, float]:
    """90 % interval of the ratio of medians, rounds drawn as pairs."""
    generator = np.random.default_rng(0)
    values = np.array(pairs)
    chosen = values[generator.integers(0, len(values), size=(2000, len(values)))]
    ratios = np.median(chosen[:, :, 0], axis=1) / np.median(chosen[:, :, 1], axis=1)
    return tuple(np.percentile(ratios, [5, 95]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
