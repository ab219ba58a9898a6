"""What the local page asks: the public functions, each answer kept while the page is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.app.web.models import OF_MODEL, Models
from paceline.app.web.query import Question
from paceline.app.web.turns import Turns
from paceline.app.web.uploads import Uploads
from paceline.errors import InvalidInputError, PacelineError
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.deployment.files import Deployment
    from paceline.planfile import PlanFile, PlannedChoice
    from paceline.reporting.pages.page import Page

Found = TypeVar("Found")
#: Answers that are kept: a slider comes back to where it was.
_MOST_KEPT = 256
#: Deadlines that are tried beside the one that is asked, as shares of it.
_DEADLINE_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every question is answered with, as given to ``paceline web``."""

    facts: tuple[Path, ...] = ()
    calibration: Path | None = None
    python: str | None = None
    as_of: str | None = None
    runs: Path | None = None


class Answers:
    """The API functions, few of them at once; what was answered or refused is kept.

    Each answer raises a PacelineError, one of its leaves with a hint, where there is none.
    """

    def __init__(self, facts: Facts, uploads: Uploads) -> None:
        self._facts, self._uploads = facts, uploads
        self._turns = Turns(_MOST_KEPT)
        self._models = Models(uploads, facts.python)

    def plan(self, question: Question) -> PlanFile:
        """The ranked plan; soonest of a model that was asked for before, whose costs are known."""
        effort = 0 if self._models.is_kept(question) else 1
        return self._once("plan", question, self._plan, effort=effort)

    def command(self, question: Question) -> str:
        """The question as typed in a shell."""
        return question.command(self._uploads.title(question.model))

    def anatomy(self, question: Question) -> Page:
        """What one device of the first choice does: roofline, ops, memory over the pass."""
        return self._once("anatomy", question, self._anatomy)

    def scaling(self, question: Question) -> Page:
        """The first choice's device in numbers."""
        return self._once("scaling", question, self._scaling)

    def deadlines(self, question: Question) -> Page:
        """The first choice at other deadlines and prices."""
        return self._once("deadlines", question, self._deadlines)

    def load(self, question: Question) -> Page:
        """What requests wait as more of them come."""
        return self._once("load", question, self._load)

    def launch(self, question: Question, target: str, command: str, choice: int) -> Deployment:
        """Launch files."""
        from paceline.app.api.planning import deploy

        plan = self.plan(question)
        purpose = None if command or plan.workload.task == "infer" else "measure"
        return deploy(plan, target, command=command, purpose=purpose, choice=choice)

    def _once(
        self, kind: str, question: Question, find: Callable[[Question], Found], *, effort: int = 1
    ) -> Found:
        found = self._turns.answer((kind, question), lambda: find(question), effort=effort)
        return found  # type: ignore[return-value]

    def _plan(self, question: Question) -> PlanFile:
        from paceline.app.requests.plan_request import read_request

        given = {k: v for k, v in question.keywords().items() if k not in OF_MODEL}
        request = read_request(
            self._models.workload(question), **given, facts=self._facts.facts,
            calibration=self._facts.calibration, as_of=self._facts.as_of,
        )  # fmt: skip
        return replace(request, asked_as=self._uploads.title(question.model)).plan()

    def _shared(self, question: Question) -> dict[str, Any]:
        """What the functions beside `plan` take alike."""
        given = question.keywords()
        names = ("seq", "image_size", "optimizer")
        return {
            **{name: given[name] for name in names if name in given},
            "python": self._models.python(question),
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
        return page_of(self._models.entry(question), options)

    def _scaling(self, question: Question) -> Page:
        from paceline.app.api.planning import scale
        from paceline.app.requests.scaling import Scaling
        from paceline.reporting.figures import ItemRate
        from paceline.reporting.pages.changes import scaling_page

        first, given = self._first(question), question.keywords()
        work = {name: given[name] for name in ("samples", "epochs", "tokens") if name in given}
        found = scale(
            self._models.entry(question), device=first.place.device, counts=_COUNTS,
            precision=first.precision, as_of=self._facts.as_of, **work, **self._shared(question),
        )  # fmt: skip
        assert isinstance(found, Scaling)
        rate = ItemRate(unit=found.rate_unit, per_item=found.samples_per_item)
        return scaling_page(found.title, found.assumptions, found.curve, found.sample_unit, rate)

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
        from paceline.reporting.pages.changes import load_page

        plan = self.plan(question)
        if plan.choices[0].service is None:
            raise InvalidInputError("no load is asked", hint="give requests per second")
        return load_page(plan)
