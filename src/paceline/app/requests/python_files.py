"""A Python file named in place of what makes the model in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from paceline.errors import InvalidInputError

T = TypeVar("T")

_MOST_NAMES = 5


def without_file(model: T) -> T | str:
    """``train.py:build`` as ``train:build``; other models as they are.

    The file is read and not run, so that a hint can name what it defines.

    Raises:
        InvalidInputError: A Python file alone, one of another folder, or without that function.
    """
    path, _, function = model.partition(":") if isinstance(model, str) else ("", "", "")
    if not path.endswith(".py"):
        return model
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(
            f"there is no file `{path}`", hint="name a module and a function: `train:build_model`"
        )
    known = list(_defined(file))
    if function in known and file.parent == Path():
        return f"{file.stem}:{function}"
    named = [function] if function in known else known[:_MOST_NAMES]
    meant = " or ".join(f"`{file.stem}:{name}`" for name in named)
    where = "" if file.parent == Path() else f", in the folder {file.parent}"
    raise InvalidInputError(
        f"`{model}` names a file, not what makes the model in it",
        hint=f"write {meant}{where}"
        if meant
        else f"write a function in `{path}` that returns the model, and name it as module:function",
    )


def _defined(file: Path) -> Iterator[str]:
    """Functions, classes, else models of the file, the last first: wholes stand below parts."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return
    kinds = (ast.FunctionDef, ast.ClassDef)
    made = [n.name for n in body if isinstance(n, kinds) and not n.name.startswith("_")]
    yield from reversed(made or [name for node in body for name in _called_model(node)])


def _called_model(node: ast.stmt) -> list[str]:
    """Names with `model` or `net` in them that the file gives to what a call returned."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return []
    names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if "model" in name.lower() or "net" in name.lower()]
