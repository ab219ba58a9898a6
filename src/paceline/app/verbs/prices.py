"""``paceline offers refresh|history|rollback``: today's prices, when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("offers refresh", refresh)
    app.add_verb("offers history", history)
    app.add_verb("offers rollback", rollback)


@common.answers
def refresh(
    feeds: Annotated[
        list[str],
        Argument(
            metavar="FEED",
            help="aws, gcp, azure, lambda, nebius, runpod, verda; https://…; a file.",
        ),
    ] = [],  # noqa: B006  click gives a list
    seen_on: Annotated[
        str | None, Option(metavar="DATE", help="Day on which the prices of a file were seen.")
    ] = None,
    cloud: Annotated[
        str | None, Option(help="Provider of a table whose rows do not say it.")
    ] = None,
    dry_run: Annotated[bool, Option(help="Say what would change, and write nothing.")] = False,
    plan: Annotated[
        Path | None, Option(metavar="PLAN", help="A kept plan: say whether it would now differ.")
    ] = None,
) -> Answer:
    """Read today's prices from public feeds, and say what changed; nothing is fetched otherwise.

    A price that moved by more than three times, has no currency or is older than the known one is
    held back and shown; a feed with more than a fifth of such prices is refused whole.
    """
    from paceline.app.api.prices import offers_refresh
    from paceline.reporting.screens.prices import (
        change_table,
        feed_table,
        held_back_table,
        refresh_lines,
    )

    found = offers_refresh(feeds, seen_on=seen_on, cloud=cloud, dry_run=dry_run, plan=plan)
    changes = [change_table(found)] if found.changes else []
    held_back = [held_back_table(found)] if found.held_back else []
    return answer_of(
        "offers_refresh", found, feed_table(found), *refresh_lines(found), *changes, *held_back
    )


@common.answers
def history() -> Answer:
    """List the refreshes that are kept, the newest first."""
    from paceline.app.api.prices import offers_history
    from paceline.reporting.screens.prices import history_table

    found = offers_history()
    none = "the shipped prices are in force; nothing was refreshed\nnext: paceline offers refresh"
    return answer_of("offers_history", found, history_table(found) if found else none)


@common.answers
def rollback(
    name: Annotated[
        str | None,
        Argument(metavar="REFRESH", help="Its name in the history; else the one before."),
    ] = None,
    shipped: Annotated[bool, Option(help="Back to the prices that paceline ships with.")] = False,
) -> Answer:
    """Put the prices of an earlier refresh in force."""
    from paceline.app.api.prices import offers_rollback

    found = offers_rollback(name, shipped=shipped)
    said = "the shipped prices are in force" if found is None else f"{found.name} is in force"
    return answer_of("offers_rollback", found, said)
