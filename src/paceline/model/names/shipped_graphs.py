"""Graphs that are shipped: the zoo, and published networks of one shape."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Task
from paceline.model.names.zoo_facts import zoo_facts


def shipped_file(entry: str, task: Task) -> Path | None:
    """The graph of an entry; None where none is shipped.

    >>> shipped_file("resnet50", "train").name, shipped_file("timm:resnet18", "train")
    ('resnet50-train.npz', None)

    Raises:
        InvalidInputError: A model of the zoo has no graph of this task.
    """
    path = _shipped().get(f"{entry}-{task}")
    if path is None and entry in zoo_facts():
        raise InvalidInputError(
            f"the zoo has no `{task}` graph of `{entry}`", hint="choose another task or model"
        )
    return path


def is_built_here(entry: str) -> bool:
    """Whether an entry can be traced, also in other sizes than what a file has of it.

    >>> is_built_here("resnet50"), is_built_here("dcgan"), is_built_here("published_speech:jasper")
    (True, False, False)
    """
    facts = zoo_facts().get(entry)
    return facts.has_builder if facts else not (entry.endswith(".npz") or _has_graph(entry))


def _has_graph(entry: str) -> bool:
    return f"{entry}-train" in _shipped() or f"{entry}-infer" in _shipped()


@cache
def _shipped() -> dict[str, Path]:
    """Files by entry and task; what stands before the colon of an entry is a folder."""
    zoo = Path(str(files("paceline.model").joinpath("zoo")))
    return {
        path.relative_to(zoo).with_suffix("").as_posix().replace("/", ":"): path
        for path in zoo.rglob("*.npz")
    }
