"""Named, isolated environments with pinned versions, side by side under one folder.

A stack is a virtual environment made with the user's own pip configuration. It counts as created
only when its description file is there, which is written last; whatever is found without one is
the remains of an attempt that did not end, and is made anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError, UnknownNameError, WorkerError
from paceline.execution.worker import WORKERS
from paceline.shipped import shipped_toml
from paceline.values import dataclass
from paceline.writing import user_folder

#: Folder of the stacks, where the user sets one.
FOLDER_VARIABLE = "PACELINE_STACKS"

_DESCRIPTION = "paceline-stack.json"
Talk = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """What to install.

    Attributes:
        name: ``torch``, or with a version of the user's own ``torch-2.8.0``.
        framework: What measures: ``torch``, ``tensorflow``, ``onnxruntime`` …
        package: Distribution whose version names the stack.
        version: Its exact version.
        requires: Requirements installed with it.
        without_dependencies: Requirements installed after it and alone.
        engine: Worker file that drives it.
        import_name: Module whose presence shows that the framework is there.
        compilers: How its engine can run a model, the usual way first; empty if it runs none.
        modes: What its engine can time: ``forward``, ``forward-backward``, ``step``.
        needs: Platform without which it is of no use; empty where there is none.
        environment: Variables its workers run with.
    """

    name: str
    framework: str
    package: str
    version: str
    requires: tuple[str, ...]
    without_dependencies: tuple[str, ...]
    engine: str
    import_name: str
    compilers: tuple[str, ...]
    modes: tuple[str, ...]
    needs: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """An environment that exists, or a Python of the user's own.

    Attributes:
        spec: What it was made from.
        python: Its interpreter.
        created_on: ISO time it was finished; empty for a Python of the user's own.
        packages: Everything installed in it, as ``name==version``.
    """

    spec: StackSpec
    python: Path
    created_on: str = ""
    packages: tuple[str, ...] = ()

    def command(self) -> tuple[str, ...]:
        """What starts its engine; the request's path is appended."""
        return (str(self.python), str(WORKERS / self.spec.engine))


@cache
def stack_specs() -> dict[str, StackSpec]:
    """Every stack that can be created, by name."""
    specs = shipped_toml("execution", "stacks.toml")["stacks"]
    return {name: _spec(name, row) for name, row in specs.items()}


def find_spec(text: str) -> StackSpec:
    """The stack that ``torch`` or ``torch==2.8.0`` means.

    Raises:
        UnknownNameError: No such stack.
        InvalidInputError: An unusable version.
    """
    name, _, version = text.partition("==")
    if name not in stack_specs():
        raise UnknownNameError.from_name(
            "stack", name, stack_specs(), command="paceline stacks list"
        )
    spec = stack_specs()[name]
    if "==" not in text or version == spec.version:
        return spec
    if not version or not all(c.isalnum() or c in ".+" for c in version):
        raise InvalidInputError(
            f"`{version}` is not a version", hint=f"write it like {name}=={spec.version}"
        )
    # Only the package itself is pinned anew: its companions belong to the release they were
    # tested with, so the resolver chooses those of the asked one.
    bare = tuple(map(_unpinned, spec.requires))
    alone = tuple(requirement.partition("==")[0] for requirement in spec.without_dependencies)
    return replace(
        spec,
        name=f"{name}-{version}",
        version=version,
        requires=(*bare, *alone),
        without_dependencies=(),
    )


def _unpinned(requirement: str) -> str:
    """A requirement of any version, on the platforms that it names.

    >>> _unpinned("numpy==2.4.6"), _unpinned("pocl==3.0; sys_platform == 'linux'")
    ('numpy', "pocl; sys_platform == 'linux'")
    """
    pinned, semicolon, marker = requirement.partition(";")
    return f"{pinned.partition('==')[0]}{semicolon}{marker}"


def stacks_folder() -> Path:
    """Where the stacks live: ``PACELINE_STACKS``, else the user's cache folder."""
    return user_folder("cache", "stacks", variable=FOLDER_VARIABLE)


def list_stacks(folder: Path) -> tuple[Stack, ...]:
    """Every finished stack in ``folder``, by name."""
    found = (_read_stack(path.parent) for path in sorted(folder.glob(f"*/{_DESCRIPTION}")))
    return tuple(stack for stack in found if stack is not None)


def find_stack(name: str, folder: Path) -> Stack:
    """The created stack called ``name``.

    Raises:
        UnknownNameError: There is no stack of that name to create either.
        InvalidInputError: It has not been created.
    """
    stack = _read_stack(folder / find_spec(name).name)
    if stack is None:
        raise InvalidInputError(
            f"the stack `{name}` has not been created",
            hint=f"create it with `paceline stacks create {name}`",
        )
    return stack


def create_stack(spec: StackSpec, folder: Path, *, talk: Talk = lambda text: None) -> Stack:
    """Make an environment for ``spec``, or return it if it is there already.

    Two processes may create the same stack at once: the second waits for the first.

    Raises:
        WorkerError: The environment could not be made; pip's last lines are in ``details``.
    """
    home = folder / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f".{spec.name}.lock"):
        existing = _read_stack(home)
        if existing is not None and existing.spec == spec:
            return existing
        shutil.rmtree(home, ignore_errors=True)
        talk(f"making a virtual environment for {spec.name}")
        _run([sys.executable, "-m", "venv", str(home)], what=f"the environment of {spec.name}")
        python = home / "bin" / "python"
        for arguments in _pip_arguments(spec):
            talk(f"installing {' '.join(a for a in arguments if not a.startswith('-'))}")
            _run([str(python), "-m", "pip", "install", "--quiet", *arguments], what=spec.name)
        return _describe(spec, home, python)


def remove_stack(name: str, folder: Path) -> bool:
    """Delete the stack called ``name``; whether there was one."""
    home = folder / find_spec(name).name
    with _locked(folder / f".{home.name}.lock") if folder.is_dir() else _nothing():
        was_there = home.is_dir()
        shutil.rmtree(home, ignore_errors=True)
    return was_there


def own_python(spec: StackSpec, python: Path) -> Stack:
    """A Python of the user's own in place of a created stack.

    Raises:
        InvalidInputError: No program is there.
    """
    if shutil.which(python) is None or not _has_module(Path(python), "sys"):
        raise InvalidInputError(
            f"`{python}` is no Python that can be started",
            hint="name its interpreter, such as --python ~/env/bin/python",
        )
    return Stack(spec=spec, python=python)


def default_stack(folder: Path) -> Stack:
    """Where PyTorch is: this Python, else the active virtual environment, else a created stack.

    Raises:
        InvalidInputError: PyTorch is in none of them.
    """
    spec = stack_specs()["torch"]
    for python in _own_pythons():
        if _has_module(python, spec.import_name):
            return own_python(spec, python)
    created = _read_stack(folder / spec.name)
    if created is None:
        raise InvalidInputError(
            "neither this Python nor the active environment has torch",
            hint="`paceline stacks create torch`, or name a Python that has it with --python",
        )
    return created


def installed_frameworks() -> tuple[str, ...]:
    """Frameworks that this Python has, as ``name version``, without importing them."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in dict.fromkeys(spec.package.partition("[")[0] for spec in stack_specs().values()):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return tuple(found)


def _own_pythons() -> Iterator[Path]:
    yield Path(sys.executable)
    if active := os.environ.get("VIRTUAL_ENV"):
        yield Path(active) / "bin" / "python"


def _has_module(python: Path, name: str) -> bool:
    if python == Path(sys.executable):
        from importlib.util import find_spec as find_module

        return find_module(name) is not None
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    found = shutil.which(python)
    return found is not None and _ended_well([found, "-c", code])


def _ended_well(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _spec(name: str, row: Mapping[str, Any]) -> StackSpec:
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return StackSpec(name=name, **lists)


def _pip_arguments(spec: StackSpec) -> Iterator[list[str]]:
    yield [f"{spec.package}=={spec.version}", *spec.requires]
    if spec.without_dependencies:
        yield ["--no-deps", *spec.without_dependencies]


def _describe(spec: StackSpec, home: Path, python: Path) -> Stack:
    frozen = _run([str(python), "-m", "pip", "freeze"], what=spec.name)
    stack = Stack(
        spec=spec,
        python=python,
        created_on=datetime.now(UTC).isoformat(timespec="seconds"),
        packages=tuple(frozen.split()),
    )
    text = json.dumps({**asdict(stack), "python": str(python)}, indent=1)
    temporary = home / f"{_DESCRIPTION}.part"
    temporary.write_text(text)
    temporary.replace(home / _DESCRIPTION)
    return stack


def _read_stack(home: Path) -> Stack | None:
    """The finished stack in ``home``; None if there is none, or its interpreter is gone."""
    try:
        values = json.loads((home / _DESCRIPTION).read_text())
        spec = _spec(values["spec"].pop("name"), values["spec"])
        python = Path(values["python"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not python.exists():
        return None
    return Stack(
        spec=spec,
        python=python,
        created_on=values["created_on"],
        packages=tuple(values["packages"]),
    )


def _run(command: list[str], *, what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise WorkerError(
            f"{what} could not be installed: {lines[-1] if lines else 'no message'}",
            hint="see pip's lines above; `pip config list` shows where it looks",
            details="\n".join(lines[-20:]),
        )
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold ``path`` against other processes; advisory, released when the process ends."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield
