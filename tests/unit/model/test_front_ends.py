"""What every front end must satisfy, the one of the tests that is written by the recipe too.

A new row of ``frontends/front_ends.csv`` gets a line in `EXAMPLES`.
"""

import ast
import importlib
import shutil
import sys
import types
from pathlib import Path

import pytest
from test_conformance import assert_conforms, rewritten

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import Phase, monomials
from paceline.model.names import front_ends
from paceline.model.names.front_ends import front_end_of
from paceline.model.reading.load import load_workload
from paceline.stack.trainers import loop_of

DATA = Path(__file__).parent / "data"
PLUGIN = Path(__file__).parents[3] / "examples" / "plugin" / "campus_paceline"
SHIPPED = front_ends.FRONT_ENDS
#: A small model of each front end, and what it multiplies for one item, forward and backward.
EXAMPLES = {
    "torch": ("transformer:layers=1,hidden=32,heads=2,vocab=50", None),
    "onnx": (str(DATA / "onnx" / "resnet18.onnx"), None),
    "keras": ("keras:VGG16", None),
    "jax": ("jax:package:function", None),
    "caffe": (str(DATA.parents[1] / "frontends" / "data" / "alexnet.prototxt"), None),
    "tensorflow": (str(DATA / "tensorflow" / "small"), None),
    "gguf": (str(DATA / "gguf" / "small.gguf"), None),
    "toy": ("toy:20x5", (2 * 20 * 5, 2 * 20 * 5)),
    "layers": ("layers:20x8x5", (2 * (20 * 8 + 8 * 5), 2 * (20 * 8 + 2 * 8 * 5))),
}
#: Front ends whose worker needs a framework that this Python has not.
OF_OTHER_PYTHONS = ("jax",)
#: Rows of the table for the two of the recipe: one that makes its report itself, one that rebuilds.
ROWS = "toy,toy,,,,toy,,\nlayers,layers,,,,torch,,\n"
REWRITES = ({}, {"precision": "fp32"}, {"compiler": "compiled"}, {"compiler": "xla"},
            {"optimizer_kernel": "plain"}, {"accumulates": True})  # fmt: skip


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """The shipped front ends, and those of the recipe."""
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    for name in ("toy", "layers"):
        (tmp_path / name).mkdir()
    shutil.copy(DATA / "toy_worker.py", tmp_path / "toy")
    shutil.copy(PLUGIN / "layers" / "layers_worker.py", tmp_path / "layers")
    with (tmp_path / "front_ends.csv").open("a") as file:
        file.write(ROWS)
    monkeypatch.setattr(front_ends, "FRONT_ENDS", tmp_path)
    return tmp_path


def files():
    return sorted(
        [*SHIPPED.glob("*/**/*.py"), *DATA.glob("*_worker.py"), *PLUGIN.glob("*/*_worker.py")]
    )


def test_every_front_end_has_an_example(workers):
    assert {one.name for one in front_ends.front_ends(workers)} == EXAMPLES.keys()


def test_every_front_end_has_its_worker_and_prefixes_of_its_own(workers):
    rows = front_ends.front_ends(workers)
    assert all(one.worker.is_file() for one in rows)
    for told in ("schemes", "endings", "classes"):
        named = [name for one in rows for name in getattr(one, told)]
        assert len(named) == len(set(named))


@pytest.mark.parametrize("front_end", EXAMPLES)
def test_the_table_says_who_reads_an_entry(front_end, workers):
    assert front_end_of(EXAMPLES[front_end][0]).name == front_end


@pytest.mark.parametrize("file", files(), ids=lambda file: file.name)
def test_a_worker_imports_nothing_of_paceline_and_reads_in_old_pythons(file):
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                for alias in node.names]  # fmt: skip
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name.split(".")[0] == "paceline"]


@pytest.mark.parametrize("front_end", EXAMPLES)
@pytest.mark.parametrize("task", ["train", "infer"])
def test_what_a_front_end_reports_can_be_rewritten(front_end, task, workers):
    entry, multiplied = EXAMPLES[front_end]
    if front_end in OF_OTHER_PYTHONS:
        pytest.skip("needs a Python with its framework")
    workload = load_workload(entry, task=task, python=sys.executable)
    for one in workload.passes:
        for settings in REWRITES if task == "train" else REWRITES[:4]:
            assert_conforms(rewritten(one.graph, settings))
    if multiplied:
        graph = workload.passes[0].graph
        at = graph.ops.flop @ monomials(1, 1)[0]
        phases = (Phase.FORWARD, Phase.BACKWARD)[: 2 if task == "train" else 1]
        assert [at[graph.ops.phase == phase].sum() for phase in phases] == [*multiplied][
            : len(phases)
        ]


def test_a_front_end_says_what_the_user_can_fix(workers):
    with pytest.raises(InvalidInputError, match="is no INPUTSxOUTPUTS"):
        load_workload("toy:nonsense", python=sys.executable)


def test_a_framework_that_no_python_has_is_named(workers, monkeypatch):
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InvalidInputError, match="no toy"):
        load_workload("toy:20x5")


@pytest.mark.parametrize("one", front_ends.front_ends(SHIPPED), ids=lambda one: one.name)
def test_what_runs_the_models_of_a_front_end_is_known_and_can(one: front_ends.FrontEnd) -> None:
    assert one.usual_task in ("train", "infer")
    if one.trained_by:
        assert not loop_of(one.trained_by).is_own
    if one.answered_by:
        loop_of(one.answered_by)
    else:
        assert not one.trained_by
    for entry in [f"{scheme}:x" for scheme in one.schemes] + [f"x{end}" for end in one.endings]:
        assert front_ends.usual_software(entry, "train") == (one.trained_by or None)
        assert front_ends.usual_software(entry, "infer") == (one.answered_by or None)


def test_files_of_what_is_trained_answer_and_others_are_trained(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    usual = {entry: front_ends.usual_task(entry) for entry in (
        "model.onnx", "model.gguf", str(tmp_path), "model.keras", "resnet50", "net:make"
    )}  # fmt: skip
    assert list(usual.values()) == ["infer", "infer", "infer", "train", "train", "train"]


def test_a_users_module_may_have_the_name_of_one_of_a_front_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SHIPPED / "torch"))
    made_models = importlib.import_module("torch_entries.made_models")
    ours = types.ModuleType("some_layers")
    ours.__file__ = str(SHIPPED / "torch" / "some_layers.py")
    monkeypatch.setitem(sys.modules, "some_layers", ours)
    (tmp_path / "some_layers.py").write_text("def net():\n    return 7\n")
    found = made_models.imported("some_layers:net", {"directory": str(tmp_path)})
    assert found() == 7
    assert sys.modules["some_layers"] is ours
