"""``paceline trials``: what it asks for comes back through ``calibrate`` and moves the choice."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import paceline
from paceline.app.main import main
from paceline.errors import InvalidInputError, UnknownNameError

ASKED = {"device": "a100", "devices": 8, "global_batch": 64, "as_of": "2026-11-20"}


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Path, paceline.app.requests.trials.Trials]:
    path = tmp_path / "runs.csv"
    return path, paceline.trials("gpt2", rows=path, **ASKED)


def fill(path: Path, factor: float, *, places: slice = slice(None)) -> None:
    """Times so many times those predicted."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines[places]:
        line["step_time_ms"] = str(factor * float(line["predicted_ms"]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def test_runs_are_different_fit_the_job_and_are_worth_something(asked) -> None:
    _, found = asked
    strategies = [one.strategy for one in found.trials]
    assert len(set(map(str, strategies))) == len(strategies) == 3
    assert {one.num_ranks for one in strategies} == {8}
    for one in found.trials:
        per_step = one.strategy.num_batches * one.strategy.schedule.num_microbatches
        assert one.microbatch * per_step == 64
    assert 0 < found.saved_frac < 1


def test_a_strategy_has_the_number_that_scale_gives_it(asked) -> None:
    _, found = asked
    for one in found.trials:
        scaled = paceline.scale(
            "gpt2", device="a100", counts=(8,), global_batch=64, as_of="2026-11-20",
            strategy=str(one.strategy),
        )  # fmt: skip
        (point,) = scaled.curve.points
        assert 64 / point.items_per_s == pytest.approx(one.step_s, rel=1e-6)


def test_what_was_as_predicted_leaves_predictions_and_narrows_what_is_asked(
    asked, tmp_path
) -> None:
    path, before = asked
    fill(path, 1.0)
    learned = tmp_path / "calibration.json"
    paceline.calibrate(path, learned)
    after = paceline.trials("gpt2", calibration=learned, **ASKED)
    times = {str(one.strategy): one.step_s for one in before.trials}
    for one in after.trials:
        if str(one.strategy) in times:
            assert one.step_s == pytest.approx(times[str(one.strategy)], rel=1e-3)
    assert after.saved_frac < before.saved_frac


def test_a_strategy_that_was_measured_slow_is_chosen_no_more(asked, tmp_path) -> None:
    path, before = asked
    best = min(before.trials, key=lambda one: one.step_s)
    place = before.trials.index(best)
    fill(path, 1.0)
    fill(path, 2.0, places=slice(place, place + 1))
    paceline.calibrate(path, tmp_path / "calibration.json")
    after = paceline.trials("gpt2", calibration=tmp_path / "calibration.json", **ASKED)
    first = min(after.trials, key=lambda one: one.step_s)
    assert str(first.strategy) != str(best.strategy)


def test_times_measured_after_learning_count_from_the_built_in_prediction(asked, tmp_path) -> None:
    """Measured twice at the same time, a run is known as if it had been so at once."""
    path, first = asked
    fill(path, 1.3)
    once = tmp_path / "once.json"
    paceline.calibrate(path, once)
    again = tmp_path / "again.csv"
    found = paceline.trials("gpt2", calibration=once, rows=again, num=64, **ASKED)
    shifts = [one.log_shift for one in found.trials]
    assert max(shifts) > 0.1
    known = {str(one.strategy): one.step_s for one in first.trials}
    for one in found.trials:
        name = str(one.strategy)
        if name in known:
            assert known[name] < one.step_s < 1.3 * known[name] * 1.001


@pytest.mark.parametrize("text", ["fast", "-3", "nan", "1e99"])
def test_times_that_are_none_are_refused(asked, tmp_path, text) -> None:
    path, _ = asked
    fill(path, 1.0)
    lines = path.read_text().splitlines()
    cells = next(csv.reader([lines[1]]))
    cells[5] = text
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([lines[0].split(","), cells])
    with pytest.raises(InvalidInputError):
        paceline.calibrate(path, tmp_path / "c.json")


def test_a_table_without_times_or_with_a_damaged_column_is_refused(asked, tmp_path) -> None:
    path, _ = asked
    with pytest.raises(InvalidInputError, match="no run of"):
        paceline.calibrate(path, tmp_path / "c.json")
    fill(path, 1.0)
    path.write_text(path.read_text().replace("kernels", "kennels").replace("workload", "work"))
    with pytest.raises(InvalidInputError, match="not as `paceline trials` wrote it"):
        paceline.calibrate(path, tmp_path / "c.json")


def test_typed_and_called_are_one(capsys, asked) -> None:
    _, found = asked
    words = "trials gpt2 --device a100 --devices 8 --global-batch 64 --as-of 2026-11-20 --json"
    assert main(words.split()) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "trials"
    assert [one["microbatch"] for one in said["trials"]] == [one.microbatch for one in found.trials]


@pytest.mark.parametrize(
    "words", ["gpt2", "gpt2 --device a100 --devices 0", "gpt2 --device a100 --num 0",
              "gpt2 --device a100 --global-batch -1", "nosuchmodel --device a100"],
)  # fmt: skip
def test_silly_requests_have_a_hint(words, capsys) -> None:
    assert main(["trials", *words.split()]) == 2
    assert capsys.readouterr().err.startswith("error")


def test_an_option_that_trials_have_not_is_refused() -> None:
    """A strategy that was stated and not heeded would be a choice nobody made."""
    with pytest.raises(UnknownNameError, match="strategy"):
        paceline.trials("gpt2", device="a100", strategy="dp8")
