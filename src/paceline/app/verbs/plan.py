"""``paceline plan``: which accelerator, how many, where, how, how long and how much."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.command_line import Option
from paceline.app.goal_options import GOAL_OPTIONS, WORK_OPTIONS
from paceline.app.option_table import asks, takes
from paceline.app.output import Answer, say
from paceline.app.requests.plan_request import read_request
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.planfile import PlanFile

_PLAN_FILE = Path("plan.yaml")
#: How every plan file begins.
_FIRST_WORDS = "# A plan of paceline"


@takes(*WORK_OPTIONS, *GOAL_OPTIONS)
@asks(
    read_request,
    model=common.Model,
    task=common.AnswerTask,
    **common.TRACED,
    **common.KNOWN,
    as_of=common.AsOf,
    why_not=Annotated[
        str | None,
        Option("Say why this device, offer, cloud or own machine is not first.", "NAME"),
    ],
    explain=Annotated[
        bool,
        Option("All reasons, and every figure of the first choice with its source.", default=False),
    ],
    form=common.Format,
    is_json=common.Json,
    output=Annotated[
        Path | None, Option("Plan file to write instead of plan.yaml.", flags=("--output", "-o"))
    ],
)
def plan(
    *, why_not: str | None, explain: bool, form: str, is_json: bool, output: Path | None,
    **asked: Any,
) -> None:  # fmt: skip
    """Rank complete plans for a job: device, count, place, configuration, time and cost.

    The plan is also written to plan.yaml, which `paceline deploy` and `paceline report` read.
    """
    wanted = common.form_of(form, is_json=is_json)
    inquiry = read_request(**asked)
    if why_not is not None:
        if explain:
            raise InvalidInputError(
                "`--explain` is of the plan, and `--why-not` shows none", hint="ask one at a time"
            )
        say(_reasons(inquiry.why_not(why_not)), wanted, output)
        return
    found = inquiry.plan(output or _PLAN_FILE)
    try:
        say(_ranking(found, is_explained=explain), wanted, None)
    finally:
        # A reader that has gone (`| head`) loses the rest of the screen, and not the plan.
        _save(found, output)


def _ranking(found: PlanFile, *, is_explained: bool) -> Answer:
    from paceline.reporting.pages.markdown import plan_markdown
    from paceline.reporting.screens.explanations import explanation_table, explanation_text
    from paceline.reporting.screens.plans import plan_text
    from paceline.reporting.tables import markdown_table

    def text(width: int) -> str:
        parts = [plan_text(found, width=width, is_full=is_explained)]
        parts += [explanation_text(found.explanation, width=width)] if is_explained else []
        return "\n\n".join(parts)

    def markdown() -> str:
        parts = [plan_markdown(found)]
        if is_explained:
            parts += ["## Every figure", markdown_table(explanation_table(found.explanation))]
        return "\n\n".join(parts)

    return Answer(kind="plan", value=found, text=text, markdown=markdown)


def _reasons(reasons: tuple[str, ...]) -> Answer:
    return Answer(
        kind="why_not",
        value=reasons,
        text=lambda _: "\n".join(reasons),
        markdown=lambda: "\n".join(f"- {reason}" for reason in reasons),
    )


def _save(found: PlanFile, output: Path | None) -> None:
    """Write the plan file; the default one only where nothing of the user's is in its place."""
    from paceline.planning.goal.files import write_plan

    path = output or _PLAN_FILE
    try:
        if output is None and path.exists() and not _is_ours(path):
            raise InvalidInputError(f"`{path}` is not a plan of ours", hint="name another with -o")
        write_plan(found, path)
    except InvalidInputError as error:
        if output is not None:
            raise
        print(f"not saved: {error}; {error.hint}", file=sys.stderr)
    else:
        print(f"{path} written", file=sys.stderr)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(len(_FIRST_WORDS)) == _FIRST_WORDS
