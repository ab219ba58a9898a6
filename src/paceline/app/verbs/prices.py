"""``paceline offers refresh|history|rollback``: today's prices, when asked for."""

from __future__ import annotations

from typing import Any

from paceline.app import options as common
from paceline.app.api import prices as api
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("offers refresh", refresh)
    app.add_verb("offers history", history)
    app.add_verb("offers rollback", rollback)


@common.answers
@asks(
    api.offers_refresh,
    feeds=Argument("FEED", "aws, gcp, azure, lambda, nebius, runpod, verda; https://…; a file."),
    seen_on=Option("Day on which the prices of a file were seen.", "DATE"),
    cloud=Option("Provider of a table whose rows do not say it."),
    dry_run=Option("Say what would change, and write nothing."),
    plan=Option("A kept plan: say whether it would now differ.", "PLAN"),
)
def refresh(**asked: Any) -> Answer:
    """Read today's prices from public feeds, and say what changed; nothing is fetched otherwise.

    A price that moved by more than three times, has no currency or is older than the known one is
    held back and shown; a feed with more than a fifth of such prices is refused whole.
    """
    from paceline.reporting.screens.prices import (
        change_table,
        feed_table,
        held_back_table,
        refresh_lines,
    )

    found = api.offers_refresh(**asked)
    changes = [change_table(found)] if found.changes else []
    held_back = [held_back_table(found)] if found.held_back else []
    return answer_of(
        "offers_refresh", found, feed_table(found), *refresh_lines(found), *changes, *held_back
    )


@common.answers
def history() -> Answer:
    """List the refreshes that are kept, the newest first."""
    from paceline.reporting.screens.prices import history_table

    found = api.offers_history()
    none = "the shipped prices are in force; nothing was refreshed\nnext: paceline offers refresh"
    return answer_of("offers_history", found, history_table(found) if found else none)


@common.answers
@asks(
    api.offers_rollback,
    name=Argument("REFRESH", "Its name in the history; else the one before."),
    shipped=Option("Back to the prices that paceline ships with."),
)
def rollback(**asked: Any) -> Answer:
    """Put the prices of an earlier refresh in force."""
    found = api.offers_rollback(**asked)
    said = "the shipped prices are in force" if found is None else f"{found.name} is in force"
    return answer_of("offers_rollback", found, said)
