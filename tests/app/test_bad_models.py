"""Models and Pythons that fail: the message shows their own words, and no traceback of ours."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import AS_OF, Outcome

from paceline.app.requests.python_files import without_file
from paceline.errors import WorkerError
from paceline.model.reading.worker import run_worker

# Models and workers -----------------------------------------------------------------------------

_MODULES = {
    "raises": "def build():\n    raise RuntimeError('no data here')\n",
    "raises on import": "raise ImportError('no such thing')\n",
    "syntax error": "def build(:\n",
    "no such function": "def other():\n    pass\n",
    "returns no model": "def build():\n    return 42\n",
    "returns nothing": "def build():\n    pass\n",
    "not a function": "build = 7\n",
    "exits": "import sys\ndef build():\n    sys.exit(3)\n",
    "dies": "import os\ndef build():\n    os._exit(9)\n",
    "prints garbage": (
        "import os\ndef build():\n    os.write(1, b'\\xff{\"event\": 1}\\n')\n"
        "    print('{not json')\n    return None\n"
    ),
    "refuses its inputs": (
        "from torch import nn\nclass M(nn.Module):\n    def forward(self, x):\n"
        "        raise ValueError('wrong shape')\ndef build():\n    return M()\n"
    ),
    "wants other inputs": (
        "from torch import nn\nclass M(nn.Module):\n    def forward(self, a, b, c):\n"
        "        return a\ndef build():\n    return M()\n"
    ),
}


#: Those whose way through the worker no test of tests/unit/model takes; the rest are slow tests.
_USUAL_MODULES = ("dies", "refuses its inputs")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=name, marks=() if name in _USUAL_MODULES else pytest.mark.slow)
        for name, source in _MODULES.items()
    ],
)
def test_a_users_module_that_fails(
    run: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    (tmp_path / "user_model.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    run("plan", "user_model:build", "--samples", "1M", *AS_OF).assert_helpful()


def test_a_failing_module_shows_its_own_last_lines_and_its_python(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user_model.py").write_text(_MODULES["raises"])
    monkeypatch.chdir(tmp_path)
    err = run("plan", "user_model:build", "--samples", "1M").err
    assert "no data here" in err
    assert "user_model.py" in err
    assert "python" in err


_PYTHONS = {
    "dies": "exit 1",
    "is killed": "kill -9 $$",
    "prints garbage": 'echo garbage; echo \'{"event": "done"}\'; head -c 2000 /dev/urandom',
    "says nothing": "exit 0",
    "talks another protocol": 'echo \'{"event": "done", "protocol": 999}\'',
}


@pytest.mark.parametrize("script", _PYTHONS.values(), ids=_PYTHONS)
def test_a_python_that_misbehaves(run: Callable[..., Outcome], tmp_path: Path, script: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    run("plan", "torchvision:resnet18", "--samples", "1M", "--python", str(python)).assert_helpful()


def test_a_python_that_hangs(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(WorkerError, match="longer than") as caught:
        run_worker({"entry": "a:b", "task": "train"}, python=str(python), timeout_s=0.5)
    assert caught.value.hint


@pytest.mark.parametrize("python", ["/nonexistent/python", "/etc/passwd", "/tmp"])
def test_a_python_that_is_none(run: Callable[..., Outcome], python: str) -> None:
    run("plan", "torchvision:resnet18", "--samples", "1M", "--python", python).assert_helpful()


@pytest.mark.parametrize(
    "entry",
    [
        "torchvision:nothing",
        "",
        " ",
        "-",
        *(
            pytest.param(e, marks=pytest.mark.slow)
            for e in ("torchvision:", ":build", "a:b:c", "os.path:join", "é:ü")
        ),
    ],
)
def test_entries_that_name_nothing(run: Callable[..., Outcome], entry: str) -> None:
    run("plan", entry, "--samples", "1M").assert_helpful()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("net.py", "write `net:build` or `net:Net`"),
        ("net.py:make", "write `net:build` or `net:Net`"),
        ("typed.py", "write `typed:model`"),
        ("sub/net.py:build", "write `net:build`, in the folder sub"),
        ("blank.py", "write a function in `blank.py`"),
        ("broken.py", "write a function in `broken.py`"),
        ("missing.py", "name a module and a function"),
    ],
)
def test_a_python_file_is_no_model_and_the_hint_names_what_it_defines(
    run: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    hint: str,
) -> None:
    source = "raise SystemExit\nclass Net: pass\ndef _part(): pass\ndef build(): pass\n"
    (tmp_path / "sub").mkdir()
    typed = "import os\nlayer = os.getcwd()\nmodel = os.getcwd()\nmodel_name = 3\n"
    known = {"net": source, "sub/net": source, "blank": "", "broken": "def (", "typed": typed}
    for file, text in known.items():
        (tmp_path / f"{file}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    outcome = run("plan", name)
    outcome.assert_helpful()
    assert hint in outcome.err


def test_nothing_is_sharded_where_nothing_is_trained(run: Callable[..., Outcome]) -> None:
    words = ("--device", "a100", "--task", "infer", "--sharding", "zero3")
    run("predict", "gpt2", *words).assert_helpful()


def test_nothing_is_narrowed_where_everything_is_trained(run: Callable[..., Outcome]) -> None:
    words = ("predict", "gpt2", "--device", "a100", "--batch", "1", "--rewrite")
    run(*words, "frozen_weights=int4").assert_helpful()
    assert run(*words, "frozen_weights=int4,lora_rank=8").status == 0


def test_a_function_of_a_python_file_here_is_that_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text("raise SystemExit\ndef build(): pass\n")
    monkeypatch.chdir(tmp_path)
    assert without_file("net.py:build") == "net:build"
    assert without_file("net:build") == "net:build"


def test_a_python_file_is_not_measured(run: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build(): pass\n")
    outcome = run("measure", str(tmp_path / "net.py"), "--store", str(tmp_path / "store"))
    outcome.assert_helpful()
    assert "`net:build`" in outcome.err
