"""The measuring verbs from the command line: one clear message for each mistake."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.app.main import main
from paceline.app.truth import measuring
from paceline.app.truth.measured_models import TRACED_ONLY
from paceline.execution.stacks import Stack, stack_specs
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.model.names.lookup import torchvision_name
from paceline.model.names.zoo_facts import zoo_facts

STEP = Record(
    kind="step",
    outcome="ok",
    recorded_at="2026-11-20T12:00:00+00:00",
    source="test",
    workload="resnet18",
    device_name="a GPU",
    framework="torch",
    samples_s=(0.1, 0.1, 0.1),
    batch_per_device=8,
    mode="step",
    cell="resnet18/b8x1",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PACELINE_STACKS", str(tmp_path / "stacks"))
    monkeypatch.chdir(tmp_path)


def write(folder, *records):
    with Store(folder) as store:
        for record in records:
            store.append(record)
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("measure resnet18 --batch 0", "`0` is not a batch"),
        ("measure resnet18 --device cpu --devices 9999", "9999 processes asked for"),
        ("ceilings --devices 9999", "9999 "),
        ("measure resnet18 --stack jax", "the stack `jax` has not been created"),
        ("measure resnet18 --stack jaxx", "no stack named `jaxx`"),
        ("measure resnet18 --mode sideways", "no mode named `sideways`"),
        ("measure resnet18 --device abacus", "no kind of device named `abacus`"),
        ("measure resnet18 --device ,", "--device names none"),
        ("measure resnet18 --optimizer momentun", "no optimizer named `momentun`"),
        ("measure resnet18 --python /no/python", "`/no/python` is no Python that can be started"),
        ("measure resnet18 --python /tmp", "`/tmp` is no Python that can be started"),
        ("stack resolve --num 0", "`--num 0` cannot be"),
        ("models --format tex", "no format named `tex`"),
        ("measure resnet18 --precision ,", "--precision names none"),
        ("measure resnet18 --mode ,", "--mode names none"),
        ("measure resnet18 --python dir", "`dir` is no Python that can be started"),
        ("measure resnet18 --html /tmp", "`/tmp` is a folder"),
        ("ceilings --size 999999999", "a matrix of 999999999"),
        ("stack resolve --compiler magic", "no compiler named `magic`"),
        ("models ünï", "no model's name holds `ünï`"),
        ("models (", "no model's name holds `(`"),
        ("offers --min-devices -1", "`--min-devices -1` cannot be"),
        ("offers --min-devices nan", "`--min-devices nan` cannot be"),
        ("export out.csv --store .", "`.` holds no measurements"),
        ("measure resnet18 --timeout 5parsecs", "is not a duration"),
        ("report nothing", "is no plan file and no folder of measurements"),
        ("export out.csv", "there is no store of measurements"),
        ("compare here there", "holds no measurements"),
        ("doctor missing.log", "cannot read"),
        ("ceilings --size 3", "a matrix of 3"),
        ("stacks create torch==", "is not a version"),
    ],
)
def test_a_mistake_is_one_message_with_a_hint(words, message, capsys):
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hint: " in error
    assert "Traceback" not in error


def test_several_kinds_of_device_are_measured_once_each(monkeypatch):
    place, _ = measuring.place_here(1, "cpu")
    kinds = {"gpu": "cuda", "cpu": "cpu", "auto": "cuda"}
    monkeypatch.setattr(measuring, "place_here", lambda _, kind: (place, kinds[kind]))
    asked = measuring.MeasureRequest(models=("mnist-cnn",), device="cpu, gpu,auto")
    assert [settings.device for _, settings in measuring._sites(asked)] == ["cpu", "cuda"]


def test_compare_ends_with_its_own_status_where_something_got_slower(tmp_path, capsys):
    before = write(tmp_path / "before", STEP)
    slower = replace(STEP, samples_s=(0.2,) * 3)
    after = write(tmp_path / "after", slower)
    assert main(["compare", str(before), str(before)]) == 0
    assert main(["compare", str(before), str(after)]) == 5
    printed = capsys.readouterr()
    assert "2.000" in printed.out
    assert "1 cells regressed" in printed.err


def test_doctor_reads_a_log_and_answers_in_json(tmp_path, capsys):
    (tmp_path / "log").write_text("RuntimeError: CUDA error: device-side assert triggered\n")
    assert main(["doctor", "log", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [finding["name"] for finding in found["findings"]] == ["device-assert"]


def test_doctor_answers_of_the_log_first_and_quotes_what_it_does_not_know(tmp_path, capsys):
    for text, first in (
        ("RuntimeError: CUDA error: device-side assert triggered\n", "1 found"),
        ("KeyError: 'image'\n", "No known cause in log, whose last error is:"),
    ):
        (tmp_path / "log").write_text(text)
        assert main(["doctor", "log"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(first)
        assert text.strip() in "\n".join(lines[:4])
        assert any(line.startswith("This machine:") for line in lines)


def test_export_writes_what_the_condition_lets_through(tmp_path):
    write(tmp_path / "store", STEP)
    assert main(["export", "out.csv", "--where", "workload = 'resnet18'"]) == 0
    assert "resnet18" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [("out.csv --where colour", "is not a condition"), ("out.xls", "has no format")],
)
def test_an_export_that_cannot_be_is_a_message(words, message, tmp_path, capsys):
    write(tmp_path / "store", STEP)
    assert main(["export", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_stack_without_micro_benchmarks_is_no_ceiling(monkeypatch, capsys):
    mxnet = Stack(spec=stack_specs()["mxnet"], python=Path(sys.executable))
    monkeypatch.setattr("paceline.execution.stacks.find_stack", lambda name, folder: mxnet)
    assert main(["ceilings", "--stack", "mxnet"]) == 2
    assert "the stack `mxnet` has no micro-benchmarks" in capsys.readouterr().err


def test_stacks_are_listed_before_any_is_made(capsys):
    assert main(["stacks", "list"]) == 0
    assert "mxnet" in capsys.readouterr().out


def test_a_page_of_measurements_is_written(tmp_path):
    pytest.importorskip("vl_convert")
    write(tmp_path / "store", STEP)
    assert main(["report", str(tmp_path / "store"), "--html", "page.html"]) == 0
    assert "resnet18" in (tmp_path / "page.html").read_text()


def test_a_model_that_does_not_exist_is_told_before_any_ceiling_is_measured(monkeypatch, capsys):
    torch = Stack(spec=stack_specs()["torch"], python=Path(sys.executable))
    failed = replace(
        STEP,
        workload="torchvision:resnet19",
        outcome="failed",
        samples_s=(),
        reason="no model `resnet19`",
    )
    monkeypatch.setattr(measuring, "measure_cells", lambda *args, **options: iter((failed,)))
    monkeypatch.setattr(
        measuring, "measure_missing_ceilings", lambda *args, **options: pytest.fail("too soon")
    )
    monkeypatch.setattr(measuring, "default_stack", lambda folder: torch)
    assert main(["measure", "torchvision:resnet19", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert "no cell could be measured: no model `resnet19`" in told
    assert "did you mean `resnet18`" in told


@pytest.mark.parametrize("name", ["resnet190", "nosuchmodel", "llma-3-8b"])
def test_a_name_that_no_model_has_is_answered_as_by_predict_before_anything_runs(
    name, monkeypatch, capsys
):
    monkeypatch.setattr(measuring, "place_here", lambda *args: pytest.fail("too soon"))
    told = []
    for words in (("measure", name), ("predict", name, "--device", "a100")):
        assert main(words) == 2
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["hf:llama-3.2-1b", "Qwen/Qwen3-8B", "dlrm", "mine.pt2"])
def test_what_is_known_by_its_sizes_alone_is_not_measured(name, capsys):
    assert main(["measure", name]) == 2
    assert "can be predicted, not measured" in capsys.readouterr().err


def test_the_zoo_is_measured_but_where_only_the_tracer_has_its_inputs(monkeypatch):
    zoo = pytest.importorskip("torch") and _module_of_engines(monkeypatch)
    bare = {name for name in zoo_facts() if torchvision_name(name) is None}
    prefixed = {name for name in bare if zoo_facts()[name].entry.startswith("torchvision:")}
    assert bare - prefixed - TRACED_ONLY == {n for n in zoo.ZOO if n in bare}


def _module_of_engines(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(paceline.__file__).parent / "frontends" / "torch"))
    return importlib.import_module("torch_networks.zoo")
