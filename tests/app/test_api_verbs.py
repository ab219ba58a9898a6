"""The Python API is as small as the command line: a function per verb, with its options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import paceline
from paceline.app.api.decisions import FolderOptions
from paceline.app.api.machine import MeasureOptions
from paceline.app.api.stack import HostOptions, StackOptions
from paceline.app.goal_options import ClusterOptions, PlanOptions, RequestOptions
from paceline.app.main import build_commands, main
from paceline.app.truth import measuring
from paceline.measurements.records import Record
from paceline.measurements.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples/scenarios"
DAY = "2026-11-20"

#: How the answer is printed, which is nothing that a function does.
PRINTING = {"form", "is_json", "output"}
#: What a verb has beside: words for another function, or what is done with the files it makes.
ONLY_TYPED = {
    "plan": {"why_not", "explain"},
    "predict": {"machine"},
    "score": {"explain"},
    "calibrate": {"is_list", "undo"},
    "feed": {"damaged"},
    "deploy": {"is_list", "dry_run", "force", "folder"},
    "run": {"quiet"},
    "web": {"open_page"},
}
#: Words of the command line that a function calls otherwise.
OTHERWISE = {"to": "target", "price": "price_usd", "electricity": "usd_per_kwh"}
TABLES = {
    "PlanOptions": PlanOptions,
    "FolderOptions": FolderOptions,
    "MeasureOptions": MeasureOptions,
    "HostOptions": HostOptions,
    "StackOptions": StackOptions,
    "ClusterOptions": ClusterOptions,
    "RequestOptions": RequestOptions,
}


def verbs(commands: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb by the name of its function: ``stack check`` is ``stack_check``."""
    for name, command in commands.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, f"{name}_")
        else:
            yield f"{above}{name}".replace(" ", "_"), command


VERBS = dict(verbs(build_commands()))


def parameters(name: str) -> set[str]:
    """What the function of a verb takes, the keys of its table of options among it."""
    function = getattr(import_module(paceline.HOMES[name]), name)
    found: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            table = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
            found |= set(TABLES[table].__annotations__)
        else:
            found.add(parameter.name)
    return found


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_a_function(name: str) -> None:
    assert name in paceline.__all__
    assert callable(getattr(paceline, name))


@pytest.mark.parametrize("name", VERBS)
def test_a_function_takes_the_options_of_its_verb(name: str) -> None:
    known, missing = parameters(name), set()
    for option in VERBS[name].params:
        word = max(option.opts, key=len).lstrip("-").replace("-", "_")
        names = {option.name, word, OTHERWISE.get(str(option.name))}
        if not names & known:
            missing.add(option.name)
    assert missing - PRINTING == ONLY_TYPED.get(name, set())


def own_machine(folder: Path) -> Path:
    path = folder / "own.yaml"
    path.write_text("machines: [{name: desk, power_supply_w: 650, num_free_slots: 1}]")
    return path


SAME: dict[str, tuple[str, Callable[[], object]]] = {
    "plan": (
        f"plan mnist-cnn --deadline 24h --cloud lambda --as-of {DAY} -o PLAN",
        lambda: paceline.plan("mnist-cnn", deadline="24h", cloud="lambda", as_of=DAY),
    ),
    "predict": (
        "predict resnet50 --device a100 --batch 1,8 --devices 1,2",
        lambda: paceline.predict("resnet50", device="a100", batch=(1, 8), devices=(1, 2)),
    ),
    "trace": (
        "trace resnet50 --device a100 --batch 8",
        lambda: paceline.trace("resnet50", device="a100", batch=8),
    ),
    "scale": (
        f"scale resnet50 --device h100 --counts 1,8 --as-of {DAY}",
        lambda: paceline.scale("resnet50", device="h100", counts=(1, 8), as_of=DAY),
    ),
    "devices": ("devices a100", lambda: paceline.devices("a100")),
    "offers": (f"offers h100 --as-of {DAY}", lambda: paceline.offers("h100", as_of=DAY)),
    "models": ("models", paceline.models),
    "own": (
        f"own {EXAMPLES / 'purchases.toml'} --name lab-five-years",
        lambda: paceline.own(EXAMPLES / "purchases.toml", name="lab-five-years"),
    ),
    "fits": (
        "fits desk --facts OWN --device 4090 --cards 2",
        lambda: paceline.fits("desk", device="4090", cards=2, facts=(Path("own.yaml"),)),
    ),
    "bill": (
        f"bill aws/p4d.24xlarge 36h --term spot --nodes 2 --egress 10GB --as-of {DAY}",
        lambda: paceline.bill(
            "aws/p4d.24xlarge", "36h", term="spot", nodes=2, egress="10GB", as_of=DAY
        ),
    ),
    "lifecycle": (
        f"lifecycle life.yaml --as-of {DAY}",
        lambda: paceline.lifecycle(Path("life.yaml"), as_of=DAY),
    ),
    "pool": ("pool pool.yaml", lambda: paceline.pool(Path("pool.yaml"))),
    "feed": (
        "feed imagenet --cores 16 --rate 1200 --devices 8",
        lambda: paceline.feed("imagenet", cores=16, rate=1200, devices=8),
    ),
    "stack_resolve": (
        "stack resolve --gpu a100 --framework torch --num 2",
        lambda: paceline.stack_resolve(gpu="a100", framework="torch", num=2),
    ),
    "stack_explain": (
        "stack explain --gpu t4 --cuda 12.4",
        lambda: paceline.stack_explain(gpu="t4", cuda="12.4"),
    ),
    "stack_check": ("stack check --gpu t4", lambda: paceline.stack_check(gpu="t4")),
    "stack_images": (
        "stack images 11.8 12.4 --gpu a100",
        lambda: paceline.stack_images(("11.8", "12.4"), gpu="a100"),
    ),
    "stacks_list": ("stacks list", paceline.stacks_list),
    "compare": (
        "compare before before --tolerance 0.1",
        lambda: paceline.compare(Path("before"), Path("before"), tolerance=0.1),
    ),
}

#: Where the answer is no, its status.
NOES = {"fits": 3}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_STACKS", str(tmp_path / "stacks"))
    own_machine(tmp_path)
    phases = (EXAMPLES / "lifecycle.yaml").read_text().replace("machines/", f"{EXAMPLES}/machines/")
    (tmp_path / "life.yaml").write_text(f"goal: {{cloud: 'lambda,own'}}\n{phases}")
    jobs = "jobs: {digits: {model: mnist-cnn, trials: 2}, all digits: {model: mnist-cnn}}"
    (tmp_path / "pool.yaml").write_text(f"pool: {{a100: 2, rtx 3090: 1}}\n{jobs}\n")
    step = Record(
        kind="step", outcome="ok", recorded_at=f"{DAY}T12:00:00+00:00", source="test",
        workload="resnet18", device_name="a GPU", framework="torch",
        samples_s=(0.1, 0.11, 0.12), batch_per_device=8, mode="step", cell="resnet18/b8x1",
    )  # fmt: skip
    with Store(tmp_path / "before") as store:
        store.append(step)
    return tmp_path


@pytest.mark.parametrize("name", SAME)
def test_a_function_returns_what_the_command_line_prints(
    name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, call = SAME[name]
    typed = words.replace("PLAN", "plan.yaml").replace("OWN", "own.yaml").split()
    assert main([*typed, "--json"]) == NOES.get(name, 0)
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(paceline.to_json(call(), kind=printed["kind"])) == printed


@pytest.mark.usefixtures("undrawn")
def test_a_report_and_an_export_are_the_same_files(elsewhere: Path) -> None:
    assert main(["report", "before", "--html", "typed.html"]) == 0
    assert paceline.report("before", Path("called.html")) == (Path("called.html"),)
    assert main(["export", "typed.csv", "--store", "before"]) == 0
    assert paceline.export(Path("called.csv"), store=Path("before")) == 1
    for ending in ("html", "csv"):
        assert Path(f"typed.{ending}").read_bytes() == Path(f"called.{ending}").read_bytes()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        (
            "--batch max --devices 1,2 --mode step,forward --precision fp32,bf16 --seconds 0.5",
            {
                "batch": None, "devices": (1, 2), "mode": ("step", "forward"),
                "precision": ("fp32", "bf16"), "seconds": 0.5,
            },
        ),
    ],
    ids=["usual", "stated"],
)  # fmt: skip
def test_measuring_asks_for_the_same(
    words: str, options: MeasureOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[measuring.MeasureRequest] = []

    def noted(request: measuring.MeasureRequest, **_: object) -> tuple[()]:
        asked.append(request)
        return ()

    monkeypatch.setattr(measuring, "measure", noted)
    assert main(["measure", "resnet18", "vgg16", *words.split()]) == 0
    paceline.measure("resnet18", "vgg16", **options)
    assert asked[0] == asked[1]


def test_what_does_not_work_together_is_an_error_of_its_own() -> None:
    with pytest.raises(paceline.StackConflictError):
        paceline.stack_check(gpu="k80", cuda="13")


def test_a_machine_is_examined(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "failed.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate\n")
    assert main(["doctor", "failed.log", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = paceline.doctor(Path("failed.log"))
    assert [one["name"] for one in printed["findings"]] == [one.name for one in found.findings]
