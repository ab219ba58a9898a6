"""What a plan says would change its answer is another answer."""

from __future__ import annotations

import pytest
from tests.sampled import sampled

import paceline


@pytest.mark.parametrize("model", sampled(["published_diffusion:sdxl", "bert-large"], "bert-large"))
def test_no_looser_limit_makes_the_machines_of_the_first_choice_win(model: str) -> None:
    plan = paceline.plan(model, task="infer", rps=1.0, as_of="2026-11-20")
    first = plan.choices[0].place
    count = first.num_nodes * first.devices_per_node
    machines = f"{first.cloud} {count:.0f}×{first.device}".lower()
    winners = [turn.partition(" makes ")[2].partition(" win ")[0] for turn in plan.turns]
    assert [winner for winner in winners if winner.lower().partition(" in ")[0] == machines] == []
