from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sampled import sampled
from tests.unit.watch.watched import script

from paceline.app.main import main
from paceline.app.truth.local_prediction import local_memory_bytes
from paceline.errors import InvalidInputError, WorkerError
from paceline.model.graph.graph import monomials
from paceline.model.graph.store import read_workload
from paceline.model.reading.load import load_workload
from paceline.watch.captured import read_capture, workload_of
from paceline.watch.capturing import capture

_FACTS: dict[str, Any] = {
    "model": "Net", "num_parameters": 10, "batch": 4, "seq": None, "compiler": "eager",
    "optimizer": [{"name": "SGD", "family": "SGD", "momentum": True, "states": 1}],
    "precision": {"weights": "float32", "autocast": None, "tf32": False},
    "microbatches": 2, "world_size": 1, "wrappers": [], "loader": {"num_workers": 3, "batch": 4},
}  # fmt: skip


def _read(folder: Path, **changed: Any):
    text = json.dumps({"facts": {**_FACTS, **changed}, "report": None, "error": "no"})
    (folder / "capture.json").write_text(text)
    job, _ = read_capture(folder)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("weights", "autocast", "tf32", "wanted"),
    [
        ("float32", None, False, ("fp32", "")),
        ("float32", None, True, ("tf32", "")),
        ("float32", "bfloat16", True, ("bf16", "")),
        ("float32", "float16", False, ("fp16", "")),
        ("bfloat16", None, False, ("bf16", "training_format=pure")),
        ("float64", None, False, ("", "")),
    ],
)
def test_a_precision_is_what_multiplies(
    tmp_path: Path, weights: str, autocast: str | None, tf32: bool, wanted: tuple[str, str]
):
    job = _read(tmp_path, precision={"weights": weights, "autocast": autocast, "tf32": tf32})
    assert (job.precision, job.rewrite) == wanted


@pytest.mark.parametrize(
    ("channels_last", "compiler", "wanted"),
    [
        (False, "eager", "channels_last=no"),
        (True, "eager", ""),
        (None, "eager", ""),
        (False, "compiled", ""),  # A compiler lays images out as it likes.
    ],
)
def test_images_of_an_eager_script_lie_as_it_lays_them(
    tmp_path: Path, channels_last: bool | None, compiler: str, wanted: str
):
    job = _read(tmp_path, channels_last=channels_last, compiler=compiler)
    assert job.rewrite == wanted


@pytest.mark.usefixtures("warm_scripts")
@pytest.mark.parametrize(
    ("words", "wanted"), [((), "channels_last=no"), (("--channels-last",), "")]
)
def test_the_layout_of_images_is_read(tmp_path: Path, words: tuple[str, ...], wanted: str):
    pytest.importorskip("torch")
    small = ("conv", "--size", "8", "--batch", "4", "--device", "cpu", *words)
    assert capture(script("on_a_gpu.py", *small), folder=tmp_path).job.rewrite == wanted


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"name": "SGD", "family": "SGD", "momentum": True}, "sgd-momentum"),
        ({"name": "SGD", "family": "SGD", "momentum": False}, "sgd"),
        ({"name": "MyAdam", "family": "Adam", "momentum": False}, "adam"),
        ({"name": "Muon9", "family": None, "momentum": False}, ""),
    ],
)
def test_an_optimizer_is_known_by_its_family(tmp_path: Path, seen: dict[str, Any], name: str):
    assert _read(tmp_path, optimizer=[seen]).optimizer == name


def test_no_figure_is_made_up_where_nothing_was_traced(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="cannot be traced: no"):
        workload_of(_read(tmp_path), {}, name="Net")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"facts": {"optimizer": []}}', "null"])
def test_a_torn_file_holds_no_job(tmp_path: Path, text: str):
    (tmp_path / "capture.json").write_text(text)
    assert read_capture(tmp_path) == (None, {})


def test_a_script_that_fails_shows_its_last_lines(tmp_path: Path):
    with pytest.raises(WorkerError, match="status 3") as caught:
        capture([sys.executable, "-c", "print('why'); raise SystemExit(3)"], folder=tmp_path)
    assert caught.value.details == "why"


def test_a_script_without_a_step_has_no_job(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="without a step"):
        capture([sys.executable, "-c", "pass"], folder=tmp_path)


@pytest.mark.usefixtures("warm_scripts")
def test_a_script_is_ended_after_its_first_step(tmp_path: Path):
    pytest.importorskip("torch")
    found = capture(script("plain.py", "20000"), folder=tmp_path)
    assert (found.job.batch, found.job.optimizer, found.job.precision) == (16, "adamw", "fp32")
    workload = read_workload(found.model)
    assert workload.num_parameters == 32 * 64 + 64 + 64 * 10 + 10
    # Forward and two products of backward, without that of the first layer's input.
    (step,) = workload.passes
    powers = monomials(1, 1)[0]
    products = 3 * 2 * (32 * 64 + 64 * 10) - 2 * 32 * 64
    assert products <= float((step.graph.ops.flop @ powers).sum()) < 1.2 * products


def test_a_script_takes_the_place_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("torch")
    monkeypatch.setenv("PACELINE_RUNS", str(tmp_path))
    words = ["predict", "--device", "a100", "--json", "--", *script("accumulating.py")]
    assert main(words) == 0
    captured = capsys.readouterr()
    (cell,) = json.loads(captured.out)["cells"]
    assert cell["batch_per_device"] == 10
    again = captured.err.split("again: paceline ")[1].splitlines()[0].split()
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == [cell]


def test_a_model_and_a_script_are_one_too_many(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "gpt2", "--", "python", "train.py"]) == 2
    assert "two models" in capsys.readouterr().err


@pytest.mark.parametrize("heap", sampled(["", "glibc 2.36", "glibc 2.41", "musl"], "", "musl"))
def test_what_a_process_holds_before_its_first_step_is_part_of_its_memory(heap: str):
    workload = load_workload("resnet18", task="train", optimizer="sgd")
    asked = {"batch": 8, "seq": 1, "microbatches": 1, "heap": heap}
    small = local_memory_bytes(workload, **asked, held_bytes=3e8)
    large = local_memory_bytes(workload, **asked, held_bytes=5e8)
    assert large.mid - small.mid == pytest.approx(2e8)
    assert small.low < small.mid < small.high
    gradients = 4 * workload.num_parameters
    assert small.low > 3e8 + gradients  # And what passes from forward to backward.
    data = local_memory_bytes(workload, **asked, held_bytes=3e8, is_data=True)
    assert data.mid < small.mid  # Libraries that load are files, which no limit of data counts.
    assert data.high - data.mid < small.high - small.mid
    more = local_memory_bytes(workload, **{**asked, "batch": 16}, held_bytes=3e8)
    assert more.low > small.low
    assert more.high > small.high


#: Steps that are left out, and microbatches of each.
_SKIPPED = ((0, 1), (3, 1), (0, 2), (2, 2))
_SCALED = """
import sys, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
num_skipped, num_accumulated = map(int, sys.argv[1:3])
for step, x in enumerate(torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)):
    model(x).square().mean().backward()
    if (step + 1) % num_accumulated == 0:
        if step // num_accumulated >= num_skipped:
            optimizer.step()
        optimizer.zero_grad(set_to_none=sys.argv[3] == "none")
"""


@pytest.mark.usefixtures("warm_scripts")
@pytest.mark.parametrize(
    ("num_skipped", "num_accumulated", "cleared"),
    sampled(
        [(*numbers, how) for numbers in _SKIPPED for how in ("none", "zeros")],
        (3, 1, "none"),
        (2, 2, "zeros"),
        (0, 2, "none"),
    ),
)
def test_steps_that_a_scaler_leaves_out_are_no_microbatches(
    tmp_path: Path, num_skipped: int, num_accumulated: int, cleared: str
):
    (tmp_path / "train.py").write_text(_SCALED)
    words = (sys.executable, str(tmp_path / "train.py"), f"{num_skipped}", f"{num_accumulated}")
    assert capture((*words, cleared), folder=tmp_path).job.microbatches == num_accumulated
