"""Send launch files, whole and broken, to the checkers in their environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paceline.deployment.files import Deployment
from validators.mutants import MUTANTS, TEXT_MUTANTS, broken_documents, broken_texts

HERE = Path(__file__).parent

#: Which script checks a target, and the environment that it runs in; None is this one.
CHECKERS: dict[str, tuple[str, str | None]] = {
    "torchrun": ("check_torchrun.py", None),
    "docker": ("check_compose.py", "validators"),
    "apptainer": ("check_apptainer.py", None),
    "kubernetes": ("check_kubernetes.py", "validators"),
    "jobset": ("check_kubernetes.py", "validators"),
    "trainjob": ("check_kubernetes.py", "validators"),
    "rayjob": ("check_kubernetes.py", "validators"),
    "kserve": ("check_kubernetes.py", "validators"),
    "sagemaker": ("check_requests.py", "validators"),
    "sagemaker-endpoint": ("check_requests.py", "validators"),
    "vertex": ("check_protobuf.py", "validators"),
    "triton": ("check_protobuf.py", "validators"),
    "tensorflow-serving": ("check_protobuf.py", "validators"),
    "skypilot": ("check_skypilot.py", "skypilot"),
    "azureml": ("check_azure.py", "azureml"),
}


def has_slurm() -> bool:
    """Whether a Slurm of our own can be started: it takes root, slurm-wlm and munge."""
    return os.geteuid() == 0 and shutil.which("slurmctld") is not None


@contextmanager
def slurm(folder: Path, **variables: str) -> Iterator[None]:
    """A Slurm of two nodes on the loopback, its files in a folder."""
    script = str(HERE / "loopback_slurm.sh")
    try:
        subprocess.run(["sh", script, "start", str(folder)], check=True, env=os.environ | variables)
        yield
    finally:
        subprocess.run(["sh", script, "stop", str(folder)], check=False)


def folder() -> Path:
    """Where the environments are: ``PACELINE_VALIDATORS``, else ``.validators`` here."""
    return Path(os.environ.get("PACELINE_VALIDATORS", ".validators"))


def create() -> None:
    """Make every environment that is not there, from its pinned requirements."""
    for name in sorted({env for _, env in CHECKERS.values() if env}):
        place = folder() / name
        if place.exists():
            continue
        venv.create(place, with_pip=True)
        for suffix, extra in (("", []), ("-alone", ["--no-deps"])):
            wanted = HERE / f"requirements-{name}{suffix}.txt"
            if wanted.exists():
                pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *extra]
                subprocess.run([*pip, "-r", str(wanted)], check=True)


def python_of(target: str) -> Path | None:
    """The Python that checks ``target``; None where its environment is not there."""
    _, name = CHECKERS[target]
    python = Path(sys.executable) if name is None else folder() / name / "bin" / "python"
    return python if python.exists() else None


def payload_of(target: str, made: Deployment) -> list[Any]:
    """What the checker reads: documents, or texts."""
    if target == "torchrun":
        return [made.files[0].text]
    if target == "apptainer":
        return [file.text for file in made.files]
    if target == "triton":
        return [made.files[1].text]
    if target == "tensorflow-serving":
        return [file.text for file in made.files[1:]]
    documents: list[Any] = []
    for file in made.files:
        if file.path.endswith(".yaml"):
            documents += yaml.safe_load_all(file.text)
        elif file.path.endswith(".json"):
            documents.append(json.loads(file.text))
    return documents


def broken(target: str, payload: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The payload broken in ten ways."""
    if target in MUTANTS:
        yield from broken_documents(target, payload)
        return
    for old, new in TEXT_MUTANTS[target]:
        if not any(old in text for text in payload):
            raise ValueError(f"the files of {target} have no `{old}` to break")
        yield f"{old} becomes {new}", [text.replace(old, new) for text in payload]


def complaints(target: str, payloads: list[list[Any]]) -> list[list[str]]:
    """What the checker says of each payload."""
    script, _ = CHECKERS[target]
    python = python_of(target)
    lines = "".join(json.dumps([target, payload]) + "\n" for payload in payloads)
    done = subprocess.run(
        [str(python), str(HERE / script)], input=lines, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    if len(answers) != len(payloads):
        raise RuntimeError(done.stderr[-2000:])
    return answers


__all__ = ["CHECKERS", "broken", "broken_texts", "complaints", "create", "payload_of", "python_of"]
