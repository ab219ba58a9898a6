"""Calls that make no sense: of any verb, with any value. A message and a hint, in time.

The calls are drawn with a seed from the command line's own options. ``make soak`` makes 2,000.
"""

from __future__ import annotations

import faulthandler
import io
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

from paceline.app.main import VERBS, build_commands, main

SEED = 20261123
MANY = 2_000
#: Calls of every run of the tests.
FEW = 40
#: Processor time that one call may take, however busy the machine is.
LIMIT_CPU_S = 60.0
#: Seconds that it may wait: those in which this process ran, as a frozen one gets no signals.
LIMIT_WAIT_S = 600
#: Verbs that start programs of the user's, measure for minutes, or serve until interrupted; what
#: reads prices from the net is left out too.
LEFT_OUT = frozenset({"measure", "ceilings", "stacks", "run", "runs", "train", "doctor", "web"})
NONSENSE = (
    "", " ", "0", "-1", "1e999", "nan", "inf", "99999999999999999999", "½", "٣", "a" * 300, "*",
    "../..", "/dev/null", "/", "loop", "\\", "'", '"', "${HOME}", "`id`", "$(id)", "%s%n", "{}",
    "a,b,,c", "a=b", "=", "a==b", "1,2,3", "-", "--", ":", "::", "a:b", "x.yaml", "x.csv", "x.npz",
    "bytes.yaml", "null", "true", "[]", "é", "日本", "\N{PILE OF POO}", "\t", "\n",
)  # fmt: skip
SENSE = (
    "mnist-cnn", "gpt2", "resnet50", "llama-3-8b", "a100", "h100", "t4", "4090", "aws/p4d.24xlarge",
    "lambda/gpu_8x_a100", "8", "1,8", "24h", "50usd", "bf16", "fp32", "compiled", "infer", "train",
    "batch=8", "lora_rank=8", "dp8", "tp2", "slurm", "docker", "cost", "12.4", "3.11", "torch",
    "2026-11-20", "imagenet", "spot", "80GB", "python train.py", "partition=gpu", "eu",
)  # fmt: skip


MODELS = ("mnist-cnn", "gpt2", "resnet50", "bert-base", "llama-3-8b")
SUBJECTS = {
    "devices": ("a100", "h100"), "offers": ("a100", "h100"), "bill": ("aws/p4d.24xlarge", "24h"),
    "feed": ("imagenet", "mnist"), "stack": ("12.4", "11.8"), "fits": ("lab", "desk"),
}  # fmt: skip


def verbs() -> list[tuple[list[str], click.Command]]:
    def walk(command: click.Command, path: list[str]) -> Iterator[tuple[list[str], click.Command]]:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from walk(below, [*path, name])
        else:
            yield " ".join(path).split(), command

    wanted = [verb for verb in VERBS if verb not in LEFT_OUT]
    found = list(walk(build_commands(wanted), []))
    return [one for one in found if one[0] != ["offers", "refresh"]]


def call(chance: random.Random, known: list[tuple[list[str], click.Command]]) -> list[str]:
    """The words of one call."""
    path, command = chance.choice([one for one in known if one[0][0] not in LEFT_OUT])
    words = list(path)
    values = [SENSE, NONSENSE] if chance.random() < 0.8 else [NONSENSE]
    subjects = SUBJECTS.get(path[0], MODELS)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            is_sensible = chance.random() < 0.85
            words.append(chance.choice(subjects if is_sensible else chance.choice(values)))
    if path[0] in ("predict", "scale", "trials", "report") and chance.random() < 0.7:
        words += ["--device", chance.choice(("a100", "h100", "t4", "4090", "A100,H100"))]
    options = [one for one in command.params if isinstance(one, click.Option)]
    for option in chance.sample(options, min(len(options), chance.randrange(4))):
        words.append(chance.choice(option.opts))
        if not option.is_flag or chance.random() < 0.05:
            words.append(chance.choice(chance.choice(values)))
    return words


@contextmanager
def limit(words: list[str]) -> Iterator[None]:
    """An error where a call computes or waits longer than it may."""
    waited_s = 0

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {LIMIT_CPU_S:g} s of the processor: {words}")

    def second(*_: object) -> None:
        nonlocal waited_s
        waited_s += 1
        if waited_s > LIMIT_WAIT_S:
            raise TimeoutError(f"waits for more than {LIMIT_WAIT_S} s: {words}")

    before = signal.signal(signal.SIGPROF, late), signal.signal(signal.SIGALRM, second)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def complaint(words: list[str]) -> str:
    """What is wrong with the answer to a call; empty where it is as it should be."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with limit(words), redirect_stdout(out), redirect_stderr(err):
            status = main(words)
    except SystemExit as end:
        status = int(end.code or 0)
    except Exception as bug:  # noqa: BLE001
        return f"{words}: {type(bug).__name__}: {bug}"
    said = err.getvalue()
    if status and ("error: " not in said or "\nhint: " not in said):
        return f"{words}: status {status} without error and hint: {said[-200:]}"
    return f"{words}: a traceback is shown" if "Traceback" in said and not status else ""


def complaints(count: int, folder: Path) -> list[str]:
    faulthandler.enable()
    (folder / "loop").symlink_to("loop")
    (folder / "bytes.yaml").write_bytes(b"\xff\xfe\x00{")
    chance, known = random.Random(SEED), verbs()
    return [found for _ in range(count) if (found := complaint(call(chance, known)))]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PACELINE_STORE", "PACELINE_RUNS", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, os.fspath(tmp_path / name.lower()))


def test_some_bad_calls_end_with_a_message(tmp_path: Path) -> None:
    assert complaints(FEW, tmp_path) == []


@pytest.mark.soak
def test_two_thousand_bad_calls_end_with_a_message(tmp_path: Path) -> None:
    assert complaints(MANY, tmp_path) == []


def test_a_bug_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("paceline.app.api.catalog.devices", broken, raising=False)
    monkeypatch.setattr("paceline.app.verbs.catalog.devices", broken, raising=False)
    monkeypatch.setattr("paceline.catalog.load.load_catalog", broken)
    assert "ZeroDivisionError" in complaint(["bill", "aws/p4d.24xlarge", "1h"])


def _endless() -> None:
    while True:
        pass


def test_a_call_that_computes_for_too_long_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LIMIT_CPU_S", 0.05)
    with limit(["bill"]), pytest.raises(TimeoutError, match="processor"):
        _endless()
