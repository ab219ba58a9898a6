"""The public surface: its names, that verbs stay callable, and that it mirrors the command line."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tolerance import ASKED_TOGETHER

import paceline
from paceline.app.goal_options import GOAL_OPTIONS, WORK_OPTIONS, ClusterOptions, PlanOptions
from paceline.app.main import main
from paceline.app.verbs.scale import SCALED
from paceline.errors import PacelineError
from paceline.planning.goal.options import parse_goal


def test_exported_names() -> None:
    assert paceline.__all__ == [
        "DoesNotFitError",
        "InvalidInputError",
        "MissingFactError",
        "NoOfferError",
        "PacelineError",
        "RegressionError",
        "StackConflictError",
        "UnknownNameError",
        "WorkerError",
        "__version__",
        "bill",
        "calibrate",
        "calibrate_list",
        "calibrate_undo",
        "ceilings",
        "compare",
        "deploy",
        "devices",
        "diagnose",
        "doctor",
        "export",
        "feed",
        "fits",
        "infer",
        "lifecycle",
        "measure",
        "models",
        "offers",
        "offers_history",
        "offers_refresh",
        "offers_rollback",
        "own",
        "plan",
        "pool",
        "predict",
        "read_plan",
        "report",
        "run",
        "runs_follow",
        "runs_list",
        "runs_show",
        "runs_stop",
        "scale",
        "score",
        "stack_check",
        "stack_explain",
        "stack_images",
        "stack_resolve",
        "stacks_check",
        "stacks_create",
        "stacks_list",
        "stacks_remove",
        "to_dict",
        "to_json",
        "trace",
        "train",
        "trials",
        "web",
        "why_not",
        "write_plan",
    ]


@pytest.mark.parametrize("name", paceline.__all__)
def test_every_exported_name_is_there_and_documented(name: str) -> None:
    value = getattr(paceline, name)
    assert name.startswith("_") or value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="frobnicate"):
        paceline.__getattr__("frobnicate")


def test_rooms_are_nouns_and_functions_are_verbs() -> None:
    names = [name for name in paceline.__all__ if not name.startswith("_")]
    assert [name for name in names if find_spec(f"paceline.{name}") is not None] == []


def test_importing_paceline_loads_neither_numpy_nor_a_framework() -> None:
    script = (
        "import sys, paceline\n"
        "heavy = {'numpy', 'torch', 'pydantic', 'yaml', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_plan_needs_no_framework_and_no_validation_library() -> None:
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import paceline\n"
        "paceline.plan('resnet50', deadline='24h', cloud='lambda', as_of='2026-11-20')\n"
        "heavy = {'pydantic', 'pandas', 'scipy', 'sklearn', 'jax', 'tensorflow'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_api_takes_the_options_of_the_command_line() -> None:
    options = {option.parameter for option in (*GOAL_OPTIONS, *WORK_OPTIONS)}
    assert set(PlanOptions.__annotations__) == options


def test_scale_and_trials_take_the_same_options_typed_and_called() -> None:
    alike = set(ClusterOptions.__annotations__)
    typed = set(SCALED) | {"device", "offer", "global_batch"}
    assert alike == typed
    assert alike <= set(inspect.signature(paceline.scale).parameters)


def test_options_that_take_several_names_say_so() -> None:
    say_so = {option.name for option in GOAL_OPTIONS if "several with commas" in option.help}
    take = set()
    for option in GOAL_OPTIONS:
        try:
            goal = parse_goal({option.name: f"{option.example},{option.example}"})
        except PacelineError:
            continue
        if any(isinstance(value, tuple) and len(value) > 1 for value in dataclasses.astuple(goal)):
            take.add(option.name)
    assert take
    assert say_so == take | {"rewrite"}


def test_a_plan_from_python_is_the_plan_of_the_command_line() -> None:
    first, second = (
        paceline.plan("resnet50", deadline=deadline, cloud="lambda", as_of=date(2026, 11, 20))
        for deadline in ("24h", "1440min")
    )
    assert paceline.to_dict(first) == paceline.to_dict(second)
    assert first.choices[0].place.usd_per_hour > 0


def test_a_plan_as_json_has_the_names_of_the_dataclasses() -> None:
    found = paceline.plan("resnet50", deadline="24h", as_of="2026-11-20")
    answer = json.loads(paceline.to_json(found, kind="plan"))
    assert answer["kind"] == "plan"
    assert answer["schema_version"] == found.schema_version
    cost_usd = found.choices[0].cost_usd
    assert cost_usd is not None
    assert answer["choices"][0]["cost_usd"]["mid"] == cost_usd.mid


@pytest.mark.kernels
def test_a_prediction_agrees_with_the_plan() -> None:
    found = paceline.plan("resnet50", deadline="7d", device="a100", max_devices=1, cloud="lambda")
    choice = found.choices[0]
    grid = paceline.predict(
        "resnet50",
        device=choice.place.device,
        batch=(choice.batch_per_device,),
        precision=choice.precision,
        compiler=choice.compiler,
    )
    (cell,) = grid.cells
    for told, planned in ((cell.step_s, choice.step_s), (cell.memory_bytes, choice.memory_bytes)):
        assert astuple(told) == pytest.approx(astuple(planned), rel=ASKED_TOGETHER)


@pytest.mark.parametrize(
    "ask", [paceline.plan, lambda model, **k: paceline.why_not(model, "A100", **k)]
)
def test_a_misspelt_keyword_is_refused(ask: Callable[..., object]) -> None:
    with pytest.raises(paceline.PacelineError, match="`deadlin`") as caught:
        ask("resnet50", deadlin="24h")
    assert "`deadline`" in caught.value.hint


def test_a_misspelt_keyword_of_a_prediction_is_refused_by_its_own_name() -> None:
    with pytest.raises(paceline.PacelineError, match="no option named `batches`") as caught:
        paceline.predict("vgg16", device="l4", batches=(1,))
    assert "`batch`" in caught.value.hint
    assert "`paceline predict --help`" in caught.value.hint


@pytest.mark.parametrize("ask", [paceline.plan, paceline.predict, paceline.trace])
def test_a_length_of_what_has_none_is_refused(ask: Callable[..., object]) -> None:
    with pytest.raises(paceline.PacelineError, match="no sequence length"):
        ask("resnet50", seq=1024)


def test_a_plan_file_may_be_named_by_text(tmp_path: Path) -> None:
    plan = paceline.plan("mnist-cnn", cloud="lambda", as_of="2026-11-20")
    paceline.write_plan(plan, str(tmp_path / "plan.yaml"))
    assert paceline.read_plan(str(tmp_path / "plan.yaml")) == plan


def test_a_plan_is_deployed_from_python_as_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    plan = paceline.plan("resnet50", deadline="24h", as_of="2026-11-20")
    paceline.write_plan(plan, path)
    made = paceline.deploy(plan, "slurm", command="python train.py", settings={"partition": "x"})
    asked = f"deploy {path} --to slurm --set partition=x --dry-run --command".split()
    assert main([*asked, "python train.py"]) == 0
    printed = capsys.readouterr().out
    assert all(file.text in printed for file in made.files)
    for choice in (0, 99):
        with pytest.raises(paceline.PacelineError, match="no choice"):
            paceline.deploy(plan, "slurm", command="train.py", choice=choice)


def test_why_not_of_nothing_is_refused() -> None:
    with pytest.raises(paceline.PacelineError, match="no device or offer is named"):
        paceline.why_not("resnet50", " ")


def test_why_not_answers_in_sentences() -> None:
    reasons = paceline.why_not("resnet50", "H100", deadline="24h", as_of="2026-11-20")
    assert reasons
    assert all(isinstance(reason, str) and reason for reason in reasons)


def test_numbers_and_flags_are_options_too() -> None:
    found = paceline.plan(
        "resnet50", samples=50_000, epochs=2, max_devices=1, spot=True, as_of="2026-11-20"
    )
    assert found.workload.num_samples == 50_000
    assert all(choice.num_devices == 1 for choice in found.choices)


@dataclass(frozen=True)
class _Shape:
    area_m2: float
    when: date
    parts: tuple[str, ...]


def test_plain_data_keeps_names_and_turns_what_json_lacks_into_none() -> None:
    shape = _Shape(area_m2=float("nan"), when=date(2026, 11, 20), parts=("a",))
    assert paceline.to_dict(shape) == {"area_m2": None, "when": "2026-11-20", "parts": ["a"]}
    assert json.loads(paceline.to_json((shape,)))["rows"][0]["parts"] == ["a"]
