"""Every device of the catalogue answers, as surely as is known, or says why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from refusals import Outcome
from tests.sampled import sampled

from paceline import predict
from paceline.catalog.load import load_catalog
from paceline.planning.forecast.grid import GridCell, PredictionGrid

NAMES = tuple(device.name for device in load_catalog().devices)
#: Few layers, so that what a process holds is soon replayed.
_TEXT = "transformer:layers=2,hidden=256,heads=4,vocab=512,positions=512,ffn=512"


def answers(grid: PredictionGrid) -> dict[str, GridCell]:
    """The first cell of each device that has a figure, or that memory explains."""
    first: dict[str, GridCell] = {}
    for cell in grid.cells:
        if cell.status != "abstained":
            first.setdefault(cell.device, cell)
    return first


@pytest.mark.parametrize(("model", "task"), [("mnist-cnn", "infer"), (_TEXT, "train")])
def test_nearly_every_device_answers(
    model: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What would make it fit where it does not is asked device by device, and is no matter here.
    monkeypatch.setattr("paceline.app.requests.predictions._remedies", lambda *_: ())
    grid = predict(model, task=task, device=",".join(NAMES))
    found = answers(grid)
    assert len(found) >= 450
    sure = [name for name, cell in found.items() if not cell.is_rough]
    assert len(sure) >= 350
    widths = [c.step_s.high / c.step_s.mid for c in grid.cells if c.step_s is not None]
    assert max(widths) <= 5.0
    told = {one.device for one in grid.unanswered} | {cell.device for cell in grid.cells}
    assert told == set(NAMES)
    assert all(one.reason for one in grid.unanswered)


@pytest.mark.parametrize(
    "name",
    ["mi300x", "rtx 6000 ada", "l40", "tpu v4", "gaudi2", "m2 max", "trainium2", "arc b580",
     "rx 6700 xt", "Xeon Platinum 8480+", "Graviton3", "tesla k40"],
)  # fmt: skip
@pytest.mark.parametrize("task", sampled(["train", "infer"], "train"))
def test_what_people_own_has_a_figure(name: str, task: str) -> None:
    (cell,) = predict("resnet50", task=task, device=name, batch=[32]).cells
    assert cell.status == "fits"
    assert cell.step_s is not None


def test_a_named_device_without_an_answer_fails_and_says_why(run: Callable[..., Outcome]) -> None:
    outcome = run("predict", "resnet50", "--device", "a100,mi308x", "--batch", "8")
    assert outcome.status == 2
    assert "A100" in outcome.out
    assert "no answer: Instinct MI308X" in outcome.err


def test_a_rough_figure_is_marked_and_no_choice(run: Callable[..., Outcome]) -> None:
    text = run("predict", "resnet50", "--device", "trainium2", "--batch", "64").out
    assert "~ " in text
    assert "rough" in text
    written = json.loads(run("predict", "resnet50", "--device", "trainium2", "--json").out)
    assert all(cell["is_rough"] for cell in written["cells"])
    first = run("predict", "mnist-cnn").out.split("\n 1  ")[1].splitlines()[0]
    assert "~" not in first


@pytest.mark.parametrize("name", ["tpu v4", "gaudi1"])
def test_more_accelerators_of_any_maker_are_faster_than_one(
    name: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("scale", "bert-base", "--device", name, "--counts", "1,4", "--json")
    one, four = json.loads(outcome.out)["curve"]["points"]
    assert four["items_per_s"] > 1.5 * one["items_per_s"]
