"""``paceline models``: the zoo, or every model whose name holds what is searched for."""

from __future__ import annotations

from textwrap import wrap
from typing import Annotated

from paceline.app import options as common
from paceline.app.api.catalog import models as list_models
from paceline.app.command_line import Argument
from paceline.app.output import Answer, answer_of
from paceline.model.names.lookup import reading_of
from paceline.model.names.registry import KnownModel, known_models
from paceline.reporting.screens.models import known_table, model_table
from paceline.reporting.tables import markdown_table, text_table


@common.answers
def models(
    words: Annotated[
        list[str] | None, Argument(metavar="NAME", help="Any part of a name, or several.")
    ] = None,
) -> Answer:
    """List the models with a reference job, or all whose name holds NAME.

    Others are named as torchvision:NAME, package.module:function, or by a file that
    `paceline trace --save` wrote.
    """
    found = list_models(*(words or ()))
    if not isinstance(found, dict):
        return _found(found, reading_of(" ".join(words or ())))
    others = [one for one in known_models() if one.name not in found]
    num_shipped = sum(one.needs == "nothing" for one in others)
    told = (
        f"{len(others):,} more are answered by name, {num_shipped:,} of them without a framework:\n"
        "search them with `paceline models llama`"
    )
    return answer_of("models", found, model_table(found), told)


def _found(models: tuple[KnownModel, ...], reading: str) -> Answer:
    """The table, below how the name alone would be read where that is a short one."""
    table = known_table(models)

    def text(width: int) -> str:
        """At a width."""
        said = [*wrap(reading, width), ""] if reading else []
        return "\n".join((*said, text_table(table, width=width)))

    def markdown() -> str:
        """That can be pasted."""
        return "\n\n".join(filter(None, (reading, markdown_table(table))))

    return Answer(kind="models", value=models, text=text, markdown=markdown)
