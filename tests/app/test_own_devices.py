"""Devices described by hand: one of each sort answers, and every field is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import plan, predict
from paceline.catalog.user_files import _DeviceEntry
from paceline.errors import PacelineError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "how-to" / "examples" / "devices.toml"
SORTS = ("Acme G1 24GB", "Two-socket server", "Acme N1", "M4 Max with 32 cores",
         "A100 80GB slice 3g.40gb")  # fmt: skip


@pytest.mark.parametrize("task", ["train", "infer"])
@pytest.mark.parametrize("name", SORTS)
def test_a_device_of_each_sort_answers_by_its_facts(name: str, task: str) -> None:
    (cell,) = predict("resnet50", task=task, device=name, batch=[16], facts=[EXAMPLE]).cells
    assert cell.status == "fits"
    assert cell.step_s is not None


def test_a_slice_is_as_fast_as_its_share() -> None:
    whole, part = (
        predict("resnet50", device=name, batch=[64], facts=[EXAMPLE]).cells[0].step_s
        for name in ("A100 SXM4 80GB", "A100 80GB slice 3g.40gb")
    )
    assert whole is not None
    assert part is not None
    assert 1.5 < part.mid / whole.mid < 108 / 42


def test_an_own_machine_that_no_release_runs_on_ends_the_search_with_its_reason(
    tmp_path: Path,
) -> None:
    lab = tmp_path / "lab.yaml"
    lab.write_text("machines: [{name: lab, device: Radeon RX 6700 XT, num_devices: 1}]\n")
    with pytest.raises(PacelineError, match="no framework") as caught:
        plan("resnet50", device="6700 xt", facts=[lab], deadline="30d")
    assert "your machine `lab` holds a Radeon RX 6700 XT" in caught.value.hint


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "how-to" / "own-devices.md").read_text(encoding="utf-8")
    for field in _DeviceEntry.model_fields:
        assert f"`{field}`" in text, field
