"""Hand a command to what runs it elsewhere, with the launch file of a plan where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.deployment.deploying import deploy
from paceline.deployment.documents import json_text
from paceline.deployment.settings import DeploySettings, Purpose
from paceline.planfile import PlanFile
from paceline.values import dataclass
from paceline.watch.capturing import WORKERS_VARIABLE, tracing_settings
from paceline.watch.elsewhere.documents import Asked, Document, check_facts, task_of
from paceline.watch.elsewhere.engines import Engine, find_engine
from paceline.watch.elsewhere.start_script import write_start
from paceline.watch.elsewhere.submit import folder_there, job_name, submit
from paceline.watch.folder import Run
from paceline.writing import make_folder, write_whole

_LAUNCH = "launch"
#: Facts that `deploy` has options of their own for.
_FIELDS = frozenset({"image", "data", "checkpoints"})


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """What a launch file is written from.

    Attributes:
        plan: Where the job runs.
        choice: Of the plan, 1 being the first.
        purpose: Train, or measure the machine.
    """

    plan: PlanFile
    choice: int
    purpose: Purpose = "train"


def hand_over(
    run: Run,
    on: str,
    *,
    launch: LaunchFile | None,
    settings: Mapping[str, str],
    variables: Mapping[str, str],
    directory: str | None,
    paths: Mapping[str, str] | None = None,
) -> Run:
    """A run submitted to an engine: with a plan its launch file, else the command as it is.

    Args:
        run: With a folder of its own.
        on: Such as ``slurm`` or ``ssh:me@gpu1``.
        launch: What its launch file is written from; None runs the command as it is.
        settings: Facts of the target, as `deploy` takes them; without a plan of a plain document.
        variables: Of the command's environment.
        directory: Where the command runs there; this folder where it is shared, else where the
            engine begins.
        paths: Variables whose values are paths inside the run's folder there; with them the command
            is not observed.

    Raises:
        InvalidInputError: The engine refuses the job, or a fact of its launch file is missing.
    """
    engine = find_engine(on)
    script = None if launch is None else _written(run, engine, launch, settings)
    command = run.command
    if engine.document:
        script, command = None, _document(replace(run, on=on), engine, script, settings)
    write_start(
        run.folder,
        command,
        directory=directory or (run.directory if engine.shares_folder else engine.directory),
        shares_folder=engine.shares_folder,
        workers=None if paths else Path(tracing_settings()[WORKERS_VARIABLE]),
        paths=paths or {WORKERS_VARIABLE: "workers"},
        variables=variables,
        launcher=None if script is None else f"{_LAUNCH}/{script.name}",
        directives=_directives(script, engine),
    )
    return submit(replace(run, on=on))


def _document(
    run: Run, engine: Engine, script: Path | None, facts: Mapping[str, str]
) -> tuple[str, ...]:
    """Write what is submitted; returns the words that it has ``start.sh`` run."""
    launch: tuple[Document, ...] = ()
    if script is None:
        check_facts(facts, engine.facts, engine.name)
    else:
        import yaml

        launch = tuple(yaml.safe_load_all(script.read_text(encoding="utf-8")))
    asked = Asked(
        name=job_name(run), folder=str(run.folder), there=folder_there(run, engine),
        command=run.command, launch=launch, facts=facts,
    )  # fmt: skip
    task = task_of(engine.name, asked)
    write_whole(run.folder / engine.document, json_text(task.document))
    return task.command


def _written(run: Run, engine: Engine, launch: LaunchFile, settings: Mapping[str, str]) -> Path:
    named = {key: value for key, value in settings.items() if key in _FIELDS}
    options = {key: value for key, value in settings.items() if key not in _FIELDS}
    wanted = DeploySettings(
        command=run.command,
        choice=launch.choice - 1,
        purpose=launch.purpose,
        options=options,
        **named,  # type: ignore[arg-type]
    )
    made = deploy(launch.plan, engine.target, wanted)
    for file in made.files:
        path = run.folder / _LAUNCH / file.path
        make_folder(path.parent)
        write_whole(path, file.text)
    return run.folder / _LAUNCH / made.files[0].path


def _directives(script: Path | None, engine: Engine) -> Sequence[str]:
    if script is None or not engine.directive:
        return ()
    lines = script.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(engine.directive)]
