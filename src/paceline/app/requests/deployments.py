"""Launch files and their targets as text."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.deployment.deploying import Target
from paceline.deployment.files import Deployment
from paceline.reporting.tables import Column, Table
from paceline.reporting.texts import labelled


def deployment_text(made: Deployment, *, folder: str | None, width: int = 100) -> str:
    """What is needed, what was assumed, and the one command.

    Args:
        made: The files.
        folder: Where they were written; None prints them instead.
        width: Columns of the terminal.
    """
    files = [f"# {file.path}\n{file.text.rstrip()}" for file in made.files]
    notes = [
        *labelled("needs", made.needs, width),
        *labelled("assumed", made.assumptions, width),
    ]
    start = f"start: cd {folder} && {made.command}" if folder else f"start: {made.command}"
    blocks = (*(files if folder is None else ()), "\n".join(notes), start)
    return "\n\n".join(block for block in blocks if block)


def target_table(targets: Sequence[Target]) -> Table:
    """One row per target."""
    return Table(
        columns=(
            Column(title="target"),
            Column(title="writes", min_width=24, told_below=True),
            Column(title="for"),
            Column(title="--set", min_width=16, told_below=True),
        ),
        rows=tuple(
            (t.name, t.summary, ", ".join(t.purposes), ", ".join(t.options)) for t in targets
        ),
    )
