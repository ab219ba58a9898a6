"""The loop on this machine's GPU: ResNet-50 and GPT-2 beside loops by hand and the prediction.

``python benchmarks/loop_gpu.py [--steps 300] [--device cuda] [--out benchmarks/loop_gpu.md]``
BF16 autocast, compiled, random data that lie on the device; milliseconds of a step are the median
of rounds that take turns. ``timm`` is the same loop over timm's model. What is not installed is
left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from paceline import loop

ROUND = 20
#: Model, batch, and whether it reads tokens.
JOBS = (("resnet50", 64, False), ("gpt2", 8, True))


def build(library: str, name: str) -> nn.Module:
    """A model with weights that are drawn; of tokens it gives logits."""
    module = importlib.import_module(library)
    if library == "torchvision.models":
        return module.get_model(name, weights=None)
    if library == "timm":
        return module.create_model(name)

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module.AutoModelForCausalLM.from_config(
                module.AutoConfig.for_model(name, use_cache=False)
            )

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.inner(tokens).logits

    return Logits()


def samples(batch: int, device: str, *, is_text: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets on the device."""
    if is_text:
        ids = torch.randint(0, 50257, (batch, 1025), device=device)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    pictures = torch.randn(batch, 3, 224, 224, device=device)
    return pictures, torch.randint(0, 1000, (batch,), device=device)


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """What all of them update with."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def by_hand(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], device: str) -> Callable:
    """A step of a plain loop."""
    model, optimizer = torch.compile(model.to(device)), sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(model(data[0]), data[1])
        loss.backward()
        optimizer.step()

    return step


def in_loop(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], device: str) -> Callable:
    """The same as the loop runs it."""
    model, optimizer = loop.parallelize(
        model, sgd, "dp1", device=device, precision="bf16", compiled=True
    )

    def step() -> None:
        optimizer.zero_grad()
        loop.forward_backward(model, loss_of, *data)
        optimizer.step()

    return step


def contenders(
    name: str, data: tuple[torch.Tensor, torch.Tensor], device: str, *, is_text: bool
) -> Iterator[tuple[str, Callable]]:
    """Each way to run a step, by its name."""
    usual = "transformers" if is_text else "torchvision.models"
    ways = (
        ("by hand", usual, by_hand),
        ("timm", "timm", by_hand),
        ("paceline.loop", usual, in_loop),
    )
    for title, library, make in ways:
        if library == "timm" and is_text:
            continue
        with contextlib.suppress(ImportError, RuntimeError):
            yield title, make(build(library, name), data, device)


def milliseconds(ways: dict[str, Callable], steps: int, device: str) -> dict[str, float]:
    """Median milliseconds of a step of each, in rounds that take turns; the first is let go."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for number in range(max(1, steps // ROUND) + 1):
        for name, step in ways.items():
            wait()
            began_s = time.perf_counter()
            for _ in range(min(ROUND, steps)):
                step()
            wait()
            if number:
                took[name].append(1e3 * (time.perf_counter() - began_s) / min(ROUND, steps))
    return {name: statistics.median(found) for name, found in took.items()}


def predicted(name: str, batch: int, gpu: str) -> str:
    """Milliseconds of a step with the bounds of the 80 % interval, or why there are none."""
    command = [
        sys.executable, "-m", "paceline", "predict", name, "--device", gpu, "--task", "train",
        "--batch", str(batch), "--devices", "1", "--precision", "bf16", "--compiler", "compiled",
        "--optimizer", "sgd-momentum", "--json",
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        return said.stderr.strip().splitlines()[0]
    step_s = json.loads(said.stdout)["cells"][0]["step_s"]
    return "{:.1f} ({:.1f} to {:.1f})".format(*(1e3 * step_s[k] for k in ("mid", "low", "high")))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=0, help="in place of each model's own")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    gpu = torch.cuda.get_device_name() if asked.device == "cuda" else asked.device
    lines = [
        f"# The loop on one {gpu}", "",
        f"`make gpu-run`: {asked.steps} steps, BF16, compiled, PyTorch {torch.__version__}.", "",
        "| model | batch | way | ms a step | predicted |", "|---|--:|---|--:|---|",
    ]  # fmt: skip
    for name, usual, is_text in JOBS:
        batch = asked.batch or usual
        data = samples(batch, asked.device, is_text=is_text)
        ways = dict(contenders(name, data, asked.device, is_text=is_text))
        told = predicted(name, batch, gpu)
        for way, found in milliseconds(ways, asked.steps, asked.device).items():
            lines.append(f"| {name} | {batch} | {way} | {found:.1f} | {told} |")
    text = "\n".join(lines) + "\n"
    if asked.out is None:
        print(text, end="")
    else:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
