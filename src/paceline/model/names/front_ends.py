"""Which front end reads what a user names: by prefix, by the ending of a file, by a folder.

``frontends/front_ends.csv`` holds a row per front end. A front end is a folder ``frontends/NAME``
with a ``NAME_worker.py``; the recipe is in ``docs/how-to/extend-the-graph.md``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paceline.plugins import plugin_files
from paceline.reading import is_file
from paceline.shipped import read_as
from paceline.values import dataclass

_TABLE = "front_ends.csv"
#: Code that reads models, a folder for each framework.
FRONT_ENDS = Path(__file__).parents[2] / "frontends"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """One reader of models.

    Attributes:
        name: Of its folder.
        schemes: What stands before the colon of its entries.
        endings: Of files that it reads.
        only_read: Those of them that are read alone: nothing in them is run or unpickled, and no
            other file that they name is opened.
        holds: A file by which a folder of its is known; empty where it reads none.
        module: What a Python must have to run its worker.
        classes: Packages whose objects it reads, where a user's function returns one.
        engine: Program of ``execution/engines`` that runs its models; empty where none does.
        trained_by: Framework that trains its models where none is stated; empty for PyTorch.
        answered_by: What runs them once trained where nothing is stated; empty for what runs those
            of PyTorch.
        usual_task: What people do with its models: ``infer`` where its files are of what is
            trained, else ``train``.
        folder: Where its worker stands.
    """

    name: str
    schemes: tuple[str, ...]
    endings: tuple[str, ...]
    only_read: tuple[str, ...]
    holds: str
    module: str
    classes: tuple[str, ...]
    engine: str
    trained_by: str
    answered_by: str
    usual_task: str
    folder: Path

    @property
    def worker(self) -> Path:
        """The program that traces."""
        return self.folder / f"{self.name}_worker.py"

    def reads_path(self, path: str) -> bool:
        """Whether a file, or a folder, is of its kind."""
        is_of_kind = path.lower().endswith(self.endings) if self.endings else False
        return is_of_kind or bool(self.holds and is_file(Path(path) / self.holds))


def front_end_of(entry: str) -> FrontEnd:
    """The front end that reads an entry; PyTorch's where no other has its prefix or its file.

    >>> front_end_of("keras:ResNet50").name, front_end_of("made/model.keras").name
    ('keras', 'keras')
    >>> front_end_of("timm:resnet18").name, front_end_of("model.pt2").name
    ('torch', 'torch')
    """
    scheme, colon, _ = entry.partition(":")
    for one in _candidates(entry):
        if (colon and scheme in one.schemes) or one.reads_path(entry):
            return one
    return default_front_end()


def _candidates(entry: str) -> Iterator[FrontEnd]:
    """Those that are shipped, then those of plug-ins where the name may be one of theirs."""
    yield from front_ends(FRONT_ENDS)
    if ":" in entry or "." in entry:
        for path in plugin_files("front_ends", _TABLE):
            yield from front_ends(path.parent)


def default_front_end() -> FrontEnd:
    """The one of names, and of functions of a user's own: the first of the table."""
    return front_ends(FRONT_ENDS)[0]


def front_end_of_object(made: object) -> FrontEnd | None:
    """The front end that reads an object of this process, by the packages of its classes."""
    packages = {one.__module__.partition(".")[0] for one in type(made).__mro__}
    # What is a class of two frameworks (Keras on PyTorch) is the higher one's.
    found = (one for one in reversed(front_ends(FRONT_ENDS)) if packages & set(one.classes))
    return next(found, None)


def usual_task(model: object) -> str:
    """``infer`` of files that hold what is trained, else ``train``, where no task is stated.

    >>> usual_task("model.gguf"), usual_task("keras:ResNet50")
    ('infer', 'train')
    """
    one = _reader_of(model)
    return "train" if one is None else one.usual_task


def usual_software(model: object, task: str) -> str | None:
    """What runs a model where nobody says; None where that is what runs those of PyTorch.

    >>> usual_software("jax:net:make", "train"), usual_software("resnet50", "train")
    ('jax', None)
    """
    one = _reader_of(model)
    return None if one is None else (one.trained_by if task == "train" else one.answered_by) or None


def _reader_of(model: object) -> FrontEnd | None:
    return front_end_of(model) if isinstance(model, str) else front_end_of_object(model)


def is_model_path(typed: str) -> bool:
    """Whether a name is that of a file or folder that a front end reads.

    >>> is_model_path("model.pt2"), is_model_path("resnet50")
    (True, False)
    """
    return any(one.reads_path(typed) for one in _candidates(typed))


@cache
def front_ends(folder: Path) -> tuple[FrontEnd, ...]:
    """The rows of the table of a folder of front ends."""
    with (folder / _TABLE).open(encoding="utf-8", newline="") as file:
        return tuple(_front_end(row, folder) for row in csv.DictReader(file))


def _front_end(row: dict[str, str], folder: Path) -> FrontEnd:
    several = ("schemes", "endings", "only_read", "classes")
    lists = {name: tuple(filter(None, (row.get(name) or "").split("|"))) for name in several}
    # A plug-in's table may be of a release that had fewer columns.
    later = {name: row.get(name) or "" for name in ("engine", "trained_by", "answered_by")}
    later["usual_task"] = row.get("usual_task") or "train"
    return read_as(FrontEnd, row, **later, folder=folder / row["name"], **lists)
