"""What `paceline train` starts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.app.api import running, training
from paceline.app.main import main
from paceline.errors import InvalidInputError
from paceline.watch.command import RATE_VARIABLE, choice_setting


@pytest.fixture(scope="module")
def plan():
    return paceline.plan("mnist-cnn", max_devices=2, as_of="2026-11-20")


@pytest.fixture
def started(monkeypatch) -> list:
    seen: list = []
    monkeypatch.setattr(running, "run", lambda command, **more: seen.append((command, more)))
    return seen


def test_a_model_is_trained_in_one_process(started) -> None:
    paceline.train("net:make", data="generated", epochs=3, rate=0.2, python=sys.executable)
    (command, more), *_ = started
    assert command[0] == sys.executable
    assert Path(command[1]).name == "train.py"
    given = dict(zip(command[2::2], command[3::2], strict=True))
    assert given == {
        "--model": "net:make", "--data": "generated", "--epochs": "3", "--rate": "0.2",
    }  # fmt: skip
    assert more["plan"] is None


def test_a_plan_says_model_batch_and_processes(started, plan) -> None:
    chosen = plan.choices[0]
    two = replace(chosen, num_devices=2, batch_per_device=64)
    paceline.train(
        replace(plan, choices=(two,)), data="x", optimizer="sgd", restarts=3, python=sys.executable
    )
    command = started[0][0]
    assert "--nproc-per-node=2" in command
    assert "--max-restarts=3" in command
    assert command[command.index("--batch") + 1] == "64"
    assert command[command.index("--model") + 1] == plan.workload.model


def test_a_keras_model_is_trained_on_devices_or_by_workers(started, plan) -> None:
    paceline.train("m:f", data="x", framework="jax", devices=2, python=sys.executable)
    paceline.train(
        "m:f", data="x", framework="tensorflow", processes=2, restarts=1, python=sys.executable
    )
    (one, _), (several, _) = started
    assert one[1].endswith("loop/keras/train.py")
    assert one[one.index("--backend") + 1 :][:3] == ["jax", "--devices", "2"]
    assert several[1].endswith("loop/keras/launch.py")
    assert several[2:5] == ["2", "1", sys.executable]
    assert several[5].endswith("loop/keras/train.py")


def test_a_plan_says_on_how_many_devices_keras_trains(started, plan) -> None:
    chosen = plan.choices[0]
    assert chosen.stack is not None
    two = replace(chosen, num_devices=2, stack=replace(chosen.stack, framework="jax"))
    own = replace(plan, choices=(two,), workload=replace(plan.workload, model="m:f"))
    paceline.train(own, data="x", python=sys.executable)
    command = started[0][0]
    assert command[command.index("--devices") + 1] == "2"
    # A model of one's own brings its optimizer.
    assert "--optimizer" not in command


def test_several_machines_are_refused(started, plan) -> None:
    place = replace(plan.choices[0].place, num_nodes=2)
    large = replace(plan, choices=(replace(plan.choices[0], place=place),))
    with pytest.raises(InvalidInputError, match="2 machines"):
        paceline.train(large, data="x", optimizer="sgd", python=sys.executable)
    with pytest.raises(InvalidInputError, match="no choice 9"):
        training.train(plan, data="x", choice=9, python=sys.executable)


def test_the_rate_of_interruptions_reaches_the_loop(plan) -> None:
    chosen = plan.choices[0]
    place = replace(chosen.place, interruption_frac_per_month=(0.05, 0.15), num_nodes=2)
    setting = choice_setting(replace(chosen, place=place))
    # 10 % of machines a month, two of them: 0.105 × 2 in 730.5 hours.
    assert float(setting[RATE_VARIABLE]) == pytest.approx(2 * 0.10536 / 730.5, rel=1e-2)
    unknown = replace(place, interruption_frac_per_month=None)
    assert RATE_VARIABLE not in choice_setting(replace(chosen, place=unknown))


def test_the_verdict_is_json_on_standard_error(monkeypatch, capsys, tmp_path) -> None:
    """Standard output is the script's own; its exit status is the verb's."""
    monkeypatch.setattr(training, "command_of", lambda *_, **__: ["sh", "-c", "exit 3"])
    words = ["train", "net", "--data", "generated", "--runs", str(tmp_path / "runs")]
    assert main([*words, "--json", "--output", str(tmp_path / "verdict.json")]) == 3
    said = capsys.readouterr()
    verdict = json.loads(said.err[said.err.index("{") :])
    assert (said.out, verdict["kind"], verdict["status"]) == ("", "run", 3)
    assert json.loads((tmp_path / "verdict.json").read_text())["status"] == 3
