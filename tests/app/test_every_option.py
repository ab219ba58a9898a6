"""An option acts, or is refused: every option of every verb, from the command line's own tables."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from option_cases import CASES, MEASURED, REFUSED, UNPROVED, Case
from refusals import Outcome

import paceline
from paceline.app.api import running
from paceline.app.main import build_commands
from paceline.app.truth import measuring
from paceline.catalog import refreshed
from paceline.errors import InvalidInputError
from paceline.measurements.records import Record
from paceline.measurements.store import Store

ROOT = Path(__file__).parents[2]
#: What repeats the question, and so is no answer.
ECHOES = frozenset({"goal", "goal_text", "assumptions", "next_commands", "notes", "rewrite"})
#: Where the answer goes, and its form: of every verb that answers.
FORM = frozenset({"--format", "--json", "--output"})


def options_of_verbs() -> Iterator[tuple[str, str]]:
    def walk(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from walk(below, f"{path} {name}".strip())
        else:
            for option in command.params:
                if isinstance(option, click.Option):
                    yield path, option.opts[0]

    yield from walk(build_commands(), "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that the commands name."""
    # Verbs take their options from functions, before a test puts another in the place of one.
    assert list(options_of_verbs())
    folder = tmp_path_factory.mktemp("files")
    plan = folder / "plan.yaml"
    found = paceline.plan("mnist-cnn", cloud="lambda,vast", max_devices=1, as_of="2026-11-20")
    paceline.write_plan(found, plan)
    head = "model,task,gpu,framework,precision,batch_per_gpu,step_time_ms\n"
    row = "resnet50,train,{},PyTorch,bf16,64,61.5\n"
    measured = ("A100 SXM4 80GB", "A100 SXM4 40GB", "A10", "RTX 4090", "RTX 3090", "H100 SXM5 80GB")
    (folder / "rows.csv").write_text(head + "".join(map(row.format, measured)))
    (folder / "own_rows.csv").write_text(head + row.format("Acme X1 80GB"))
    scenarios = ROOT / "examples/scenarios"
    bought = (scenarios / "purchases.toml").read_text()
    rented = bought.replace("runpod/1x GeForce RTX 4090", "campus/x1-4")
    (folder / "own_purchases.toml").write_text(rented)
    phases = (scenarios / "lifecycle.yaml").read_text().partition("serve:")[0]
    phases = phases.replace("machines/", f"{scenarios}/machines/")
    (folder / "lifecycle.yaml").write_text(f"goal: {{max-devices: 1}}\n{phases}")
    jobs = "jobs: {digits: {model: mnist-cnn, trials: 2}, all digits: {model: mnist-cnn}}"
    for name, device in (("pool", "a100"), ("own_pool", "Acme X1 80GB")):
        (folder / f"{name}.yaml").write_text(f"pool: {{{device}: 2, rtx 3090: 1}}\n{jobs}\n")
    heads, rows = "arrival_s,prompt_tokens,output_tokens\n", ("0,100,20\n", "1,300,40\n")
    (folder / "arrivals.csv").write_text(heads + "".join(rows))
    tower = "machines: [{name: tower, power_supply_w: 1600, num_free_slots: 4}]"
    (folder / "tower.yaml").write_text(tower)
    for name, seconds in (("before", 0.1), ("after", 0.2)):
        with Store(folder / name) as store:
            store.append(_record(seconds))
    calibration = folder / "calibration.json"
    paceline.calibrate(folder / "rows.csv", calibration)
    (folder / "taken").mkdir()
    (folder / "taken/job.sbatch").write_text("mine")
    named = {one.stem: str(one) for one in folder.iterdir()}
    return named | {
        "page": str(folder / "page.html.csv"),
        "other_page": str(folder / "other.html"),
        "saved": str(folder / "saved.npz"),
        "folder": str(folder / "new"),
        "copied": str(folder / "copied.json"),
        "no_python": str(folder / "no-such-python"),
        "lab": str(ROOT / "docs/how-to/examples/lab.toml"),
        "purchases": str(scenarios / "purchases.toml"),
        "empty": str(folder / "empty"),
        "quotes": str(ROOT / "tests/unit/catalog/feeds/skypilot_nebius.csv"),
    }


@pytest.fixture(autouse=True)
def alone(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], tmp_path: Path, undrawn: None
) -> None:
    """Nothing kept on this machine, and pages whose pictures are their specifications."""
    monkeypatch.setenv("PACELINE_STORE", files["empty"])
    offers = tmp_path / "offers"
    monkeypatch.setenv("PACELINE_OFFERS", str(offers))
    offers.mkdir()
    for name in ("20261101T000000-001.csv", "20261102T000000-001.csv"):
        (offers / name).write_text(",".join(refreshed.COLUMNS) + "\n")
    (offers / "current").write_text("20261102T000000-001.csv\n")


def _record(seconds: float) -> Record:
    return Record(
        kind="step", outcome="ok", recorded_at="2026-11-20T12:00:00+00:00", source="test",
        workload="resnet18", device_name="a GPU", framework="torch", samples_s=(seconds,) * 9,
        batch_per_device=8, mode="step", cell="resnet18/b8x1",
    )  # fmt: skip


def test_every_option_has_a_case() -> None:
    known = {(verb, option) for verb, cases in CASES.items() for option in cases}
    measured = {(_verb(command), one) for command, ones in MEASURED.items() for one in ones}
    found = {(verb, option) for verb, option in options_of_verbs() if option not in FORM}
    missing = sorted(found - known - measured - UNPROVED)
    assert not missing, f"write a case in option_cases.py: {missing}"


def test_no_case_is_of_an_option_that_is_gone() -> None:
    found = set(options_of_verbs())
    for verb, cases in CASES.items():
        assert not [option for option in cases if (verb, option) not in found], verb


def _verb(command: str) -> str:
    words = command.split()
    return " ".join(words[:2] if words[0] == "runs" else words[:1])


_ANSWERS: dict[str, Any] = {}


def answer(run: Callable[..., Outcome], words: list[str], case: Case, files: dict[str, str]) -> Any:
    """What a command says without what repeats its question; its status and words if it fails."""
    key = f"{case.reads} {shlex.join(words)}"
    if case.reads == "file" or key not in _ANSWERS:
        shutil.rmtree(files["folder"], ignore_errors=True)
        for name in ("page", "other_page", "saved"):
            Path(files[name]).unlink(missing_ok=True)
        shutil.copy(files["calibration"], files["copied"])
        is_json = case.reads == "json" and words[0] not in ("report", "compare", "export")
        got = run(*words, *(["--json"] if is_json else []))
        written = {n: Path(files[n]).is_file() for n in ("page", "other_page", "saved")}
        if case.reads == "file":
            page = Path(files["page"])
            return got.status, written, page.read_bytes() if page.is_file() else None
        if words[0] == "report" and Path(files["page"]).is_file():
            pictures = sorted(one.name for one in Path(files["folder"]).glob("*"))
            return got.status, written, got.out, Path(files["page"]).read_text(), pictures
        said = got.out + got.err
        _ANSWERS[key] = got.status, _answered(got.out) if is_json and got.out else said
    return _ANSWERS[key]


def _answered(text: str) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in ECHOES}
        return [plain(v) for v in value] if isinstance(value, list) else value

    try:
        return plain(json.loads(text))
    except ValueError:
        return text


@pytest.mark.parametrize(
    ("verb", "option"), [(verb, option) for verb, cases in CASES.items() for option in cases]
)
def test_an_option_changes_the_answer(
    verb: str, option: str, files: dict[str, str], run: Callable[..., Outcome],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    case = CASES[verb][option]
    without, with_it = case.words(option, files)
    assert answer(run, without, case, files) != answer(run, with_it, case, files)


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_an_option_that_says_nothing_is_refused(
    command: str, words: str, files: dict[str, str], run: Callable[..., Outcome],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    got = run(*shlex.split(command.format(**files)))
    assert got.status == 2, got.out
    assert words in got.err
    assert "\nhint: " in got.err


@pytest.mark.parametrize(
    ("command", "option"), [(c, option) for c, options in MEASURED.items() for option in options]
)
def test_an_option_of_a_measurement_reaches_what_is_measured(
    command: str, option: str, files: dict[str, str], run: Callable[..., Outcome],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []

    def stop(*request: Any, **settings: Any) -> None:
        seen.append((request, {k: v for k, v in settings.items() if k != "talk"}))
        raise InvalidInputError("seen", hint="nothing is measured")

    def without_ready(*, on_ready: object, **settings: Any) -> None:
        stop(**settings)

    monkeypatch.setattr(measuring, "measure", stop)
    for name in ("run", "runs_list", "runs_show", "runs_follow", "runs_stop"):
        monkeypatch.setattr(running, name, stop)
    monkeypatch.setattr("paceline.app.api.diagnosis.diagnose", stop)
    monkeypatch.setattr("paceline.app.api.pages.find_ceilings", stop)
    monkeypatch.setattr("paceline.app.web.serving.web", without_ready)
    monkeypatch.setattr("paceline.app.api.feeding.measure_folder", stop)
    monkeypatch.setattr("paceline.app.api.feeding.infer", stop)
    if option in ("--on", "--set", "--in", "--runs"):
        monkeypatch.setattr("paceline.app.api.machine.measure", stop)
    value = MEASURED[command][option]
    given = [] if value is None else [value.format(**files)]
    if option in ("--html", "--damaged"):
        seen += ["a file is written afterwards: test_measure_cli.py, test_feed_cli.py"]
    words = command.split()
    place = words.index("--") if "--" in words else len(words)
    run(*words)
    if option in words:
        words[words.index(option) + 1] = given[0]
        run(*words)
    else:
        run(*words[:place], option, *given, *words[place:])
    assert len(seen) >= 2
    assert seen[0] != seen[1]


def test_the_form_of_an_answer_is_every_verb_s_own() -> None:
    """`--format`, `--json` and `--output` are one mechanism, which `devices` shows."""
    found = {option for verb, option in options_of_verbs() if option in FORM}
    assert set(CASES["devices"]) >= found


def test_a_new_option_without_a_case_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "feed", {})
    with pytest.raises(AssertionError, match=r"write a case.*--cores"):
        test_every_option_has_a_case()


def test_several_ways_are_several_cells() -> None:
    grid = paceline.predict(
        "resnet50", device="a100", batch=(256,), precision="tf32,bf16", compiler="eager,compiled"
    )
    ways = [(cell.precision, cell.compiler) for cell in grid.cells]
    assert sorted(ways) == [
        ("bf16", "compiled"), ("bf16", "eager"), ("tf32", "compiled"), ("tf32", "eager"),
    ]  # fmt: skip
    for cell in grid.cells:
        (alone,) = paceline.predict(
            "resnet50", device="a100", batch=(256,), precision=cell.precision,
            compiler=cell.compiler,
        ).cells  # fmt: skip
        assert replace(cell) == alone


def test_what_a_device_does_not_run_of_several_ways_is_said() -> None:
    grid = paceline.predict("resnet50", device="v100", batch=(64,), precision="bf16,fp16")
    assert [cell.precision for cell in grid.cells] == ["fp16"]
    assert grid.unanswered[0].reason == "it does not run bf16"
