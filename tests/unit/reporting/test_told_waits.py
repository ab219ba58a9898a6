"""A host that waits for the device is told, and what it loses."""

from __future__ import annotations

import re

import torch

import paceline
from paceline.reporting.screens.traces import breakdown_text


class Printing:
    """A step that prints its loss."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(8, 8)

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, 8)

    def step(self, model: torch.nn.Module, x: torch.Tensor) -> None:
        loss = model(x).square().mean()
        print(loss.item())
        loss.backward()


def told(model: object, device: str | None) -> list[str]:
    lines = breakdown_text(paceline.trace(model, device=device)).splitlines()
    return [line for line in lines if "the host waits" in line]


def test_a_host_that_waits_is_told_and_what_it_loses() -> None:
    (line,) = told(Printing(), "a100")
    assert re.fullmatch(r"  the host waits once for the device: \d+ % of the pass is lost", line)
    assert told(Printing(), None) == ["  the host waits once for the device"]
    assert told("gpt2", "a100") == []
