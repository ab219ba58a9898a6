"""Sweeps that another machine measures: sent, found again, and their records brought here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import paceline
from paceline.app.truth.measuring import MeasureRequest
from paceline.app.truth.measuring_elsewhere import Elsewhere, _options, _running, _Sweep
from paceline.errors import InvalidInputError, WorkerError
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.watch.folder import runs_in

#: Stands for a Python there that has paceline: keeps what it was asked, and writes one record.
PYTHON = """#!{python} -S
import os, pathlib, sys
there = pathlib.Path(os.environ["PACELINE_STORE"])
there.mkdir()
(there / "words.txt").write_text("\\n".join(sys.argv[1:]))
(there / "1.jsonl").write_text({line!r} + "\\n" if {is_well} else "")
print("[1/1] mnist-cnn \\x1b[31mdone" if {is_well} else "No module named paceline")
sys.exit({status})
"""
STEP = Record(
    kind="step", outcome="ok", recorded_at="2026-11-20T12:00:00+00:00", source="paceline measure",
    workload="mnist-cnn", device_name="a far CPU", framework="torch", samples_s=(0.1, 0.1, 0.1),
    batch_per_device=8, mode="step", cell="mnist-cnn/b8x1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.watch.elsewhere.submit._ASK_EVERY_S", 0.05)


def python_there(folder: Path, *, is_well: bool = True) -> str:
    from paceline.measurements.records import record_to_line

    path = folder / "it's $(a) python"
    text = PYTHON.format(
        python=sys.executable, line=record_to_line(STEP), is_well=is_well, status=int(not is_well)
    )
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def measured(tmp_path: Path, **more: object) -> tuple[str, ...]:
    said: list[str] = []
    rows = paceline.measure(
        "mnist-cnn", on="ssh:far", runs=tmp_path / "runs", store=tmp_path / "store",
        on_notice=said.append, batch=(8,), **more,  # type: ignore[arg-type]
    )  # fmt: skip
    assert [row.record.device_name for row in rows] == ["a far CPU"]
    return tuple(said)


def test_records_come_back_and_what_it_printed_is_said(cluster: Path, tmp_path: Path) -> None:
    said = measured(tmp_path, python=python_there(tmp_path), precision=("fp32", "bf16"))
    assert "  [1/1] mnist-cnn [31mdone" in said
    assert [one.workload for one in Store(tmp_path / "store").read().records] == ["mnist-cnn"]
    (run,) = runs_in(tmp_path / "runs")
    words = (run.folder / "records" / "words.txt").read_text().split("\n")
    assert words[:4] == ["-m", "paceline", "measure", "mnist-cnn"]
    assert "fp32,bf16" in words
    assert "observer" not in {path.name for path in run.folder.iterdir()}


def test_the_same_call_finds_what_a_dead_one_began(cluster: Path, tmp_path: Path) -> None:
    python = python_there(tmp_path)
    request = MeasureRequest(models=("mnist-cnn",), batch=(8,), python=python)
    there = Elsewhere(on="ssh:far", settings={}, directory=None, runs=tmp_path / "runs")
    from paceline.app.truth.measuring_elsewhere import _one

    (sweep,) = _one(request, there)
    begun = _running(sweep, there, lambda _: None)
    said = measured(tmp_path, python=python)
    assert [run.id for run in runs_in(tmp_path / "runs")] == [begun.id]
    assert "goes on from before" in said[0]
    measured(tmp_path, python=python)
    assert len(runs_in(tmp_path / "runs")) == 2


def test_a_sweep_that_measured_nothing_says_why_and_is_not_found_again(
    cluster: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match="No module named paceline"):
        measured(tmp_path, python=python_there(tmp_path, is_well=False))
    measured(tmp_path, python=python_there(tmp_path))


def test_options_are_typed_as_they_were_given() -> None:
    request = MeasureRequest(
        models=("resnet18",), batch=None, devices=(1, 2), channels_last=True, seconds=2.0
    )
    words = ["--batch", "max", "--devices", "1,2", "--channels-last", "--seconds", "2.0"]
    assert list(_options(request)) == words


@pytest.mark.parametrize(
    ("given", "message"),
    [({"profile": Path("p")}, "`--profile` says nothing"),
     ({"settings": {"partition": "gpu"}}, "`--set` says nothing without a plan")],
)  # fmt: skip
def test_what_belongs_here_is_refused(
    given: dict[str, object], message: str, cluster: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        measured(tmp_path, **given)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    found = paceline.plan("resnet50", deadline="24h", cloud="lambda", as_of="2026-11-20")
    paceline.write_plan(found, path)
    return path


def test_a_plan_is_measured_on_its_first_offers(
    cluster: Path, tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own document, whose command writes into the folder that is fetched."""
    begun: list[_Sweep] = []

    def run(sweep: _Sweep, *_: object) -> None:
        begun.append(sweep)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("paceline.app.truth.measuring_elsewhere._running", run)
    settings = {"offers": "2", "wall-time": "1h"}
    with pytest.raises(KeyboardInterrupt):
        paceline.measure(str(plan), on="skypilot", settings=settings, store=tmp_path / "store")
    choices = [one.launch.choice for one in begun if one.launch]
    offers = [one.place.offer for one in paceline.read_plan(plan).choices]
    assert len({offers[number - 1] for number in choices}) == 2
    assert {tuple(one.settings.items()) for one in begun} == {(("wall-time", "1h"),)}


def test_what_a_plan_s_launch_file_measures_lands_where_it_is_fetched(
    cluster: Path, tmp_path: Path, plan: Path
) -> None:
    bin_folder = cluster.parent / "bin"
    real = Path(python_there(tmp_path)).read_text()
    (bin_folder / "paceline").write_text(real.replace("PACELINE_STORE", "PACELINE_RECORDS"))
    (bin_folder / "paceline").chmod(0o755)
    rows = paceline.measure(
        str(plan), on="skypilot", settings={"offers": "1"}, runs=tmp_path / "runs",
        store=tmp_path / "store",
    )  # fmt: skip
    assert [row.record.device_name for row in rows] == ["a far CPU"]
    (run,) = runs_in(tmp_path / "runs")
    words = (run.folder / "records" / "words.txt").read_text().split("\n")
    assert words[words.index("--store") + 1].endswith("/records")


def test_a_plan_needs_a_place(cluster: Path, plan: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a plan, and its machines are elsewhere"):
        paceline.measure(str(plan))
    with pytest.raises(InvalidInputError, match="--batch"):
        paceline.measure(str(plan), on="skypilot", batch=(9,))
