"""``paceline deploy``: launch files for a plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.api import planning as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of, say
from paceline.errors import InvalidInputError
from paceline.writing import make_folder, write_whole

if TYPE_CHECKING:
    from paceline.deployment.files import Deployment


@asks(
    api.deploy,
    plan=Annotated[Path | None, Argument("PLAN", "Plan file, as `paceline plan` wrote it.", None)],
    to=Annotated[str | None, Option("Where to launch; --list shows all.", "TARGET")],
    command=Option("Training script with its arguments, quoted.", "'python train.py'"),
    purpose=Option("train, measure or serve; what was planned if left out."),
    choice=Option("Which choice of the plan, 1 being the first."),
    name=Option("Job name."),
    image=Option("Container image instead of the published one."),
    data=Option("Path, claim, bucket or URL of the training data."),
    checkpoints=Option("Where checkpoints go."),
    variant=Option("gke-gpu or gke-tpu on Kubernetes."),
    settings=Annotated[
        list[str], Option("A fact of the target; repeatable.", "KEY=VALUE", ("--set",))
    ],
    is_list=Annotated[
        bool, Option("List the targets and what they take.", "", ("--list",), default=False)
    ],
    dry_run=Annotated[bool, Option("Print the files instead of writing them.", default=False)],
    force=Annotated[bool, Option("Replace files that are there and differ.", default=False)],
    folder=Annotated[
        Path | None,
        Option("Where the files go; deploy-TARGET if left out.", flags=("--folder", "-o")),
    ],
    form=common.Format,
    is_json=common.Json,
)
def deploy(
    *, plan: Path | None, to: str | None, settings: Sequence[str], is_list: bool, dry_run: bool,
    force: bool, folder: Path | None, form: str, is_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """Write launch files for a plan and print the one command that starts the job."""
    from paceline.planning.goal.files import read_plan

    wanted = common.form_of(form, is_json=is_json)
    if is_list and (plan is not None or to is not None):
        raise InvalidInputError(
            "`--list` lists every target, and deploys none", hint="ask one at a time"
        )
    if dry_run and (force or folder is not None):
        raise InvalidInputError(
            f"`--{'force' if force else 'folder'}` says nothing beside --dry-run, which writes "
            "no file",
            hint="leave one of them out",
        )
    if is_list:
        say(_targets_answer(), wanted, None)
        return
    if plan is None or to is None:
        raise InvalidInputError(
            "a plan and a target are needed",
            hint="write it like paceline deploy plan.yaml --to slurm; `paceline deploy --list`",
        )
    made = api.deploy(read_plan(plan), to, settings=common.pairs(settings), **asked)
    target_folder = folder or Path(f"deploy-{made.target}")
    if not dry_run:
        _write(made, target_folder, can_replace=force)
    say(_answer(made, target_folder, shows_files=dry_run), wanted, None)


def _write(made: Deployment, folder: Path, *, can_replace: bool) -> None:
    for file in made.files:
        path = folder / file.path
        if not can_replace and path.exists() and path.read_bytes() != file.text.encode():
            raise InvalidInputError(
                f"`{path}` is there and differs", hint="choose another --folder, or add --force"
            )
    for file in made.files:
        path = folder / file.path
        make_folder(path.parent)
        write_whole(path, file.text)
        print(f"{path} written", file=sys.stderr)


def _answer(made: Deployment, folder: Path, *, shows_files: bool) -> Answer:
    from paceline.app.requests.deployments import deployment_text

    where = None if shows_files else str(folder)
    return Answer(
        kind="deployment",
        value=made,
        text=lambda width: deployment_text(made, folder=where, width=width),
        markdown=lambda: deployment_text(made, folder=where),
    )


def _targets_answer() -> Answer:
    from paceline.app.requests.deployments import target_table
    from paceline.deployment.deploying import targets

    found = targets()
    return answer_of("targets", found, target_table(found))
