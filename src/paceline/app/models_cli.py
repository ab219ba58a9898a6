"""``paceline models``: the zoo, whose models are planned without any framework."""

from __future__ import annotations

from paceline.app import options as common
from paceline.app.api import models as zoo_models
from paceline.app.command_line import Commands
from paceline.app.output import Answer, answer_of
from paceline.report.models import model_table


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("models", models)


@common.answers
def models() -> Answer:
    """List the models that need no framework, with their reference jobs.

    Others are named as torchvision:NAME, package.module:function, or by a file that
    `paceline trace --save` wrote.
    """
    found = zoo_models()
    return answer_of("models", found, model_table(found))
