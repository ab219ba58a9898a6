"""Launch files and their targets as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.deployment.deploying import Target
from paceline.deployment.deploying import deploy as deployment_of
from paceline.deployment.files import Deployment
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, PacelineError
from paceline.planfile import PlanFile
from paceline.reporting.tables import Table, header
from paceline.reporting.texts import labelled


def checked_deployment(plan: PlanFile, target: str, settings: DeploySettings) -> Deployment:
    """Launch files for one choice of a plan, in which every stated fact is found.

    Each is taken away in turn: where the files stay the same it says nothing.

    Raises:
        InvalidInputError: A stated fact changes nothing.
    """
    made = deployment_of(plan, target, settings)
    for option, without in _less_stated(settings):
        try:
            is_same = deployment_of(plan, target, without) == made
        except PacelineError:
            continue  # It cannot be done without.
        if is_same:
            raise InvalidInputError(
                f"`{option}` changes nothing of what is written for {made.target}",
                hint="leave it out, or deploy to a target that reads it",
            )
    return made


def _less_stated(settings: DeploySettings) -> Iterator[tuple[str, DeploySettings]]:
    """Each fact that was stated, and the settings without it."""
    plain = DeploySettings()
    for name in ("image", "data", "checkpoints", "variant", "command"):
        if value := getattr(settings, name):
            text = shlex.join(value) if name == "command" else value
            yield f"--{name} {text}", replace(settings, **{name: getattr(plain, name)})
    for key, value in settings.options.items():
        others = {name: one for name, one in settings.options.items() if name != key}
        yield f"--set {key}={value}", replace(settings, options=others)


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
    start = f"start: {_start(made, folder)}"
    blocks = (*(files if folder is None else ()), "\n".join(notes), start)
    return "\n\n".join(block for block in blocks if block)


def _start(made: Deployment, folder: str | None) -> str:
    """The command as it is typed where the user is."""
    if folder is None:
        return made.command
    if made.runs_beside_code:
        *words, file = made.command.split()
        return shlex.join([*words, str(Path(folder, file))])
    return f"cd {shlex.quote(folder)} && {made.command}"


def target_table(targets: Sequence[Target]) -> Table:
    """One row per target."""
    return Table(
        columns=header("target | writes ~18+ | for | --set ~16+"),
        rows=tuple(
            (t.name, t.summary, ", ".join(t.all_purposes), ", ".join(t.options)) for t in targets
        ),
    )
