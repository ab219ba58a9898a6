"""Models that the page was asked about: read or traced once, as long as there are few of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from paceline.app.web.query import UPLOADED, Question, check_name
from paceline.app.web.uploads import Uploads

if TYPE_CHECKING:
    from paceline.model.graph.workload import Workload

#: Of a question, what is said of the model and not of the goal.
OF_MODEL = ("task", "seq", "image_size", "optimizer")
#: Options of the work that say what an item is, which the model is read with.
_OF_ITEM = (
    "denoising-steps", "guidance", "sound", "beams", "prefix-share", "adapters", "speculate",
)  # fmt: skip
_MOST_KEPT = 8


class Models:
    """Workloads by how they are asked for: a search knows the costs of one that it met before."""

    def __init__(self, uploads: Uploads, python: str | None) -> None:
        self._uploads, self._python = uploads, python
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, Workload] = OrderedDict()

    def entry(self, question: Question) -> str:
        """What the public functions call the model.

        Raises:
            PacelineError: No name of the registry, and nothing that was dropped.
        """
        if question.model.startswith(UPLOADED):
            return self._uploads.entry(question.model)
        check_name(question.model)
        return question.model

    def python(self, question: Question) -> str | None:
        """The Python of models that are traced; it says nothing of others."""
        from paceline.app.requests.plan_request import python_for

        return python_for(self.entry(question), self._python, question.task)

    def is_kept(self, question: Question) -> bool:
        """Whether the model was asked for lately."""
        return _key(question) in self._kept

    def workload(self, question: Question) -> Workload:
        """The model, read or traced.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        key, entry = _key(question), self.entry(question)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = _loaded(entry, question, self.python(question))
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return found


def _loaded(entry: str, question: Question, python: str | None) -> Workload:
    from paceline.app.option_table import option_texts
    from paceline.app.requests.plan_request import check_length, load
    from paceline.app.web.query import OPTIONS
    from paceline.planning.goal.options import parse_work

    given = question.keywords()
    of_model: dict[str, Any] = {name: given[name] for name in OF_MODEL if name in given}
    of_item = {name: question.value(name) for name in _OF_ITEM if question.value(name)}
    options = {name.replace("-", "_"): text for name, text in of_item.items()}
    item = parse_work(option_texts(options, tuple(OPTIONS[name] for name in _OF_ITEM))).item
    workload = load(entry, **of_model, python=python, item=item)
    check_length(workload, of_model.get("seq"))
    return workload


def _key(question: Question) -> object:
    said = (question.value(name) for name in ("seq", "image-size", "optimizer", *_OF_ITEM))
    return (question.model, question.task, *said)
