"""What the local page asks: the public functions, each answer kept while the page is open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.app.progress import silent
from paceline.app.web.query import UPLOADED, Question, check_name
from paceline.app.web.uploads import Uploads
from paceline.errors import InvalidInputError, PacelineError

if TYPE_CHECKING:
    from paceline.deployment.files import Deployment
    from paceline.planfile import PlanFile, PlannedChoice
    from paceline.reporting.pages.page import Page

Found = TypeVar("Found")
#: Answers that are kept: a slider comes back to where it was.
_MOST_KEPT = 256
#: Answers that are looked for at the same time: a third would take memory and gain nothing.
_MOST_AT_ONCE = 2
#: Deadlines that are tried beside the one that is asked, as shares of it.
_DEADLINE_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Loads that are tried, likewise.
_LOAD_SHARES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
#: What `paceline.predict` takes of a service.
_OF_REQUESTS = ("prompt-tokens", "output-tokens", "spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every question is answered with, as given to ``paceline web``."""

    facts: tuple[Path, ...] = ()
    calibration: Path | None = None
    python: str | None = None
    as_of: str | None = None
    runs: Path | None = None


class Answers:
    """The API functions, few of them at once; what was answered or refused is kept."""

    def __init__(self, facts: Facts, uploads: Uploads) -> None:
        self._facts, self._uploads = facts, uploads
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._own = threading.local()
        self._kept: OrderedDict[tuple[str, Question], object] = OrderedDict()

    def plan(self, question: Question) -> PlanFile:
        """The ranked plan.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        return self._once("plan", question, lambda: self._plan(question))

    def command(self, question: Question) -> str:
        """The question as typed in a shell."""
        return question.command(self._uploads.title(question.model))

    def anatomy(self, question: Question) -> Page:
        """What one device of the first choice does: roofline, ops, memory over the pass.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        return self._once("anatomy", question, lambda: self._anatomy(question))

    def scaling(self, question: Question) -> Page:
        """The first choice's device in numbers.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        return self._once("scaling", question, lambda: self._scaling(question))

    def deadlines(self, question: Question) -> Page:
        """The first choice at other deadlines and prices.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        return self._once("deadlines", question, lambda: self._deadlines(question))

    def load(self, question: Question) -> Page:
        """What requests wait as more of them come.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        return self._once("load", question, lambda: self._load(question))

    def launch(self, question: Question, target: str, command: str, choice: int) -> Deployment:
        """Launch files.

        Raises:
            PacelineError: One of its leaves, with a hint.
        """
        from paceline.app.api.planning import deploy

        plan = self.plan(question)
        purpose = None if command or plan.workload.task == "infer" else "measure"
        return deploy(plan, target, command=command, purpose=purpose, choice=choice)

    def _once(self, kind: str, question: Question, find: Callable[[], Found]) -> Found:
        key = (kind, question)
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = self._found(find)
            with self._lock:
                self._kept[key] = found
                if len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        if isinstance(found, PacelineError):
            raise found.with_traceback(None)
        return found  # type: ignore[return-value]

    def _found(self, find: Callable[[], object]) -> object:
        """What is found, or the refusal; waits for its turn unless it is part of another answer."""
        is_whole = not getattr(self._own, "has_turn", False)
        if is_whole:
            self._turns.acquire()
            self._own.has_turn = True
        try:
            with silent():
                return find()
        except PacelineError as refusal:
            return refusal
        finally:
            if is_whole:
                self._own.has_turn = False
                self._turns.release()

    def _model(self, question: Question) -> str:
        if question.model.startswith(UPLOADED):
            return self._uploads.entry(question.model)
        check_name(question.model)
        return question.model

    def _plan(self, question: Question) -> PlanFile:
        from paceline.app.api.planning import plan

        return plan(
            self._model(question), **question.keywords(), facts=self._facts.facts,
            calibration=self._facts.calibration, as_of=self._facts.as_of, **self._traced(question),
        )  # fmt: skip

    def _traced(self, question: Question) -> dict[str, Any]:
        """The Python of models that are traced; it says nothing of others."""
        from paceline.app.requests.plan_request import python_for

        model = self._model(question)
        return {"python": python_for(model, self._facts.python, question.task)}

    def _shared(self, question: Question) -> dict[str, Any]:
        """What the functions beside `plan` take alike."""
        given = question.keywords()
        names = ("seq", "image_size", "optimizer")
        return {
            **{name: given[name] for name in names if name in given},
            **self._traced(question),
            "facts": self._facts.facts,
            "calibration": self._facts.calibration,
        }

    def _first(self, question: Question) -> PlannedChoice:
        choice = self.plan(question).choices[0]
        if choice.shares:
            raise InvalidInputError(
                "the first choice is of two kinds of device", hint="name one under device"
            )
        return choice

    def _anatomy(self, question: Question) -> Page:
        from paceline.app.api.pages import ModelOptions, page_of

        first = self._first(question)
        options = ModelOptions(
            device=first.place.device, task=question.task, precision=first.precision,
            batches=(max(1, first.batch_per_device // first.microbatches),),
            compiler=first.compiler, rewrite=question.value("rewrite"), **self._shared(question),
        )  # fmt: skip
        return page_of(self._model(question), options)

    def _scaling(self, question: Question) -> Page:
        from paceline.app.api.planning import scale
        from paceline.app.requests.scaling import Scaling
        from paceline.reporting.pages.changes import scaling_page

        first, given = self._first(question), question.keywords()
        work = {name: given[name] for name in ("samples", "epochs", "tokens") if name in given}
        found = scale(
            self._model(question), device=first.place.device, counts=_COUNTS,
            precision=first.precision, as_of=self._facts.as_of, **work, **self._shared(question),
        )  # fmt: skip
        assert isinstance(found, Scaling)
        return scaling_page(found.title, found.assumptions, found.curve, found.sample_unit)

    def _deadlines(self, question: Question) -> Page:
        from paceline.reporting.pages.changes import deadlines_page
        from paceline.units import parse_duration_s

        plan = self.plan(question)
        deadline = question.value("deadline")
        asked_s = parse_duration_s(deadline) if deadline else 0.0
        first = plan.choices[0]
        whole_s = asked_s or (first.time_s.mid if first.time_s else 0.0)
        plans = []
        for share in _DEADLINE_SHARES if whole_s else ():
            other = question.replaced(deadline=f"{whole_s * share / 3600:.3g}h")
            try:
                plans.append((whole_s * share, self.plan(other)))
            except PacelineError:
                continue
        return deadlines_page(plans, plan)

    def _load(self, question: Question) -> Page:
        from paceline.app.api.planning import predict
        from paceline.reporting.pages.changes import load_page

        plan, first = self.plan(question), self._first(question)
        asked = plan.workload.requests_per_s
        if not asked:
            raise InvalidInputError("no load is asked", hint="give requests per second")
        given = question.keywords()
        names = [name.replace("-", "_") for name in _OF_REQUESTS]
        requests = {name: given[name] for name in names if name in given}
        cells = []
        for share in _LOAD_SHARES:
            try:
                grid = predict(
                    self._model(question), device=first.place.device,
                    devices=(first.num_devices,), task=question.task, precision=first.precision,
                    rps=asked * share, **requests, **self._shared(question),
                )  # fmt: skip
            except PacelineError:
                # More than the service can do: the curve ends here.
                break
            cells += [(asked * share, cell) for cell in grid.services[:1]]
        return load_page(cells, asked=asked)
