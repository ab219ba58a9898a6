"""Graphs that are shipped: the zoo, published networks of one shape, and what libraries have."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Task
from paceline.model.names.zoo_facts import zoo_facts

_ENDING = ".npz"
#: Beginnings of entries whose networks a worker builds, whether or not a graph is shipped.
_LIBRARIES = ("hf", "timm", "torchvision", "published_yolo")


def shipped_file(entry: str, task: Task) -> Path | None:
    """The graph of an entry; None where none is shipped.

    >>> shipped_file("resnet50", "train").name, shipped_file("timm:resnet10t", "train")
    ('resnet50-train.npz', None)
    >>> shipped_file("hf:mistral-7b", "infer").name
    'mistral-7b-infer.npz'

    Raises:
        InvalidInputError: A model of the zoo has no graph of this task.
    """
    path = _shipped().get(f"{entry}-{task}")
    if path is None and entry in zoo_facts():
        other = "train" if task == "infer" else "infer"
        raise InvalidInputError(
            f"`{entry}` is known as a job of `--task {other}` alone",
            hint=f"ask for --task {other}, or trace a network of your own for --task {task}: "
            "package.module:function",
        )
    return None if path is None else Path(path)


def is_built_here(entry: str) -> bool:
    """Whether an entry can be traced, also in other sizes than what a file has of it.

    >>> is_built_here("resnet50"), is_built_here("dcgan"), is_built_here("published_speech:jasper")
    (True, False, False)
    >>> is_built_here("hf:mistral-7b")
    True
    """
    facts = zoo_facts().get(entry)
    if facts:
        return facts.has_builder
    is_of_library = entry.partition(":")[0] in _LIBRARIES
    return is_of_library or not (entry.endswith(".npz") or has_graph(entry))


def has_graph(entry: str) -> bool:
    """Whether a graph of an entry is shipped, for one task or both.

    >>> has_graph("gpt2"), has_graph("hf:mistral-7b"), has_graph("timm:resnet10t")
    (True, True, False)
    """
    return f"{entry}-train" in _shipped() or f"{entry}-infer" in _shipped()


@cache
def _shipped() -> dict[str, str]:
    """Files by entry and task; what stands before the colon of an entry is a folder."""
    zoo = str(Path(__file__).parent.parent / "zoo")
    found = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(zoo)
        for name in names
        if name.endswith(_ENDING)
    )
    start, end = len(zoo) + 1, -len(_ENDING)
    return {path[start:end].replace(os.sep, ":"): path for path in found}
