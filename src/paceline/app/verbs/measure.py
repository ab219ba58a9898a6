"""``paceline measure``, ``doctor``, ``compare`` and ``stacks``: the truth on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of, say

if TYPE_CHECKING:
    from paceline.measurements.ledger import LedgerRow


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("measure", measure)
    app.add_verb("doctor", doctor)
    app.add_verb("compare", compare)
    stacks = app.add_group("stacks", "Isolated, pinned environments to measure in.")
    stacks.add_verb("list", stacks_list)
    stacks.add_verb("create", stacks_create)
    stacks.add_verb("check", stacks_check)
    stacks.add_verb("remove", stacks_remove)


class _CellOptions(TypedDict, total=False):
    """How every cell is measured."""

    python: common.Python
    device: Annotated[str, Option(help="cpu, gpu, or auto.", default="auto")]
    threads: Annotated[int | None, Option(help="CPU threads of each process.")]
    seq: Annotated[int, Option(help="Sequence length of texts.", default=128)]
    image_size: common.ImageSize
    optimizer: Annotated[
        str, Option(help="sgd, adam or adamw; a workload's own goes first.", default="sgd")
    ]
    channels_last: Annotated[bool, Option(help="Images in NHWC (PyTorch).", default=False)]
    timeout: Annotated[str, Option(help="Longest time of one cell.", default="10min")]
    memory: Annotated[str | None, Option(help="Cap of main memory of one cell.")]
    seconds: Annotated[float, Option(help="Shortest time to sample a cell.", default=1.0)]
    profile: Annotated[
        Path | None, Option(help="Folder for a Chrome trace of every cell (PyTorch).")
    ]
    store: common.Store


@common.answers
def measure(
    models: Annotated[
        list[str],
        Argument(
            metavar="MODEL...",
            help="torchvision's by their names, timm:NAME, package.module:function, or of the zoo: "
            "mnist-cnn, lstm, gpt2, bert-base, …; with --on also a plan file.",
        ),
    ],
    batch: Annotated[
        str,
        Option(
            metavar="1,4,16|max",
            help="Items per device, or the largest that fits; several with commas.",
        ),
    ] = "1,4,16",
    devices: Annotated[
        str, Option(metavar="1,2", help="Devices, or CPU processes; several with commas.")
    ] = "1",
    mode: Annotated[
        str,
        Option(
            help="step, forward-backward, forward, or usual: a step where the stack trains; "
            "several with commas."
        ),
    ] = "usual",
    precision: Annotated[str, Option(help="fp32, tf32, bf16, fp16; several with commas.")] = "fp32",
    compiler: Annotated[
        str,
        Option(help="eager, compiled, xla, or usual: as people run it; several with commas."),
    ] = "usual",
    stack: Annotated[
        str | None, Option(help="Stack, or this Python's torch without; several with commas.")
    ] = None,
    html: Annotated[Path | None, Option(help="Write a report that opens offline.")] = None,
    on: common.On = None,
    settings: common.SetThere = None,
    directory: common.FolderThere = None,
    runs: common.Runs = None,
    **options: Unpack[_CellOptions],
) -> Answer:
    """Measure models here or elsewhere: batch against devices, precision, compiler and stack.

    Each cell runs in a process of its own; running out of memory, crashing and hanging are values
    of the table. Ctrl-C keeps what was measured, and the same command goes on from there. With
    --on another machine measures, those of a plan each around its own choice, and the records come
    back into the store here.
    """
    from paceline.app.api.machine import measure as measure_models
    from paceline.app.options import pairs
    from paceline.app.truth.measuring import Talker
    from paceline.app.verbs.run import tell

    rows = measure_models(
        *models,
        html=html,
        on_progress=Talker(sys.stderr),
        on=on,
        settings=pairs(settings or []),
        directory=directory,
        runs=runs,
        on_notice=tell,
        batch=None if batch == "max" else common.whole_numbers(batch, "batch"),
        devices=common.whole_numbers(devices, "number of devices"),
        mode=_words(mode),
        precision=_words(precision),
        compiler=_words(compiler),
        stack=_words(stack or ""),
        **options,
    )
    if html is not None:
        print(f"{html} written", file=sys.stderr)
    return _measured_answer(rows)


@common.answers
def doctor(
    log: Annotated[
        Path | None, Argument(metavar="[LOG]", help="Output of a failed run; - for stdin.")
    ] = None,
) -> Answer:
    """Say what this machine has, and what is wrong with it or with a failed run's output."""
    from paceline.app.api.machine import doctor as examine
    from paceline.reporting.screens import machines

    found = examine(log)
    text = machines.doctor_text(
        found.facts,
        found.machine,
        found.findings,
        frameworks=found.frameworks,
        stacks=found.stacks,
    )
    return Answer(kind="doctor", value=found, text=lambda width: text, markdown=lambda: text)


def compare(
    before: Annotated[Path, Argument(metavar="BEFORE", help="Store folder or .jsonl file.")],
    after: Annotated[Path, Argument(metavar="AFTER", help="Store folder or .jsonl file.")],
    tolerance: Annotated[
        float, Option(help="Change of the median that does not matter, as a fraction.")
    ] = 0.05,
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Judge two sets of measurements cell by cell; status 5 if anything got slower."""
    from paceline.app.api.machine import compare as compare_measurements
    from paceline.measurements.compare import require_no_regression
    from paceline.reporting.screens.measurements import comparison_text

    comparisons = compare_measurements(before, after, tolerance=tolerance)
    answer = Answer(
        kind="comparison",
        value=comparisons,
        text=lambda width: comparison_text(comparisons, width=width),
        markdown=lambda: comparison_text(comparisons),
    )
    say(answer, "json" if is_json else "text", output)
    require_no_regression(comparisons)


@common.answers
def stacks_list() -> Answer:
    """Stacks that exist and stacks that can be created."""
    from paceline.app.api.machine import stacks_list as list_stacks
    from paceline.execution.stacks import stack_specs, stacks_folder
    from paceline.reporting.screens.machines import stacks_table

    created = list_stacks()
    table = stacks_table(created, tuple(stack_specs().values()))
    return answer_of("stacks", created, table, f"in {stacks_folder()}")


@common.answers
def stacks_create(
    names: Annotated[list[str], Argument(metavar="NAME[==VERSION]...", help="See `list`.")],
) -> Answer:
    """Make stacks with pip as you have configured it; those that exist are left as they are."""
    from paceline.app.api.machine import stacks_create as create_stacks

    made = create_stacks(*names, on_progress=lambda text: print(text, file=sys.stderr))
    lines = (
        f"{one.spec.name}: {one.spec.package} {one.spec.version} in {one.python}" for one in made
    )
    return answer_of("stacks", made, "\n".join(lines))


@common.answers
def stacks_check(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME]...", help="All that exist without.")
    ] = None,
) -> Answer:
    """Start each stack's engine and say what it finds; status 2 if one does not work."""
    from paceline.app.api.machine import stacks_check as check_stacks

    lines = check_stacks(*(names or ()))
    return answer_of("stack_checks", lines, "\n".join(lines))


@common.answers
def stacks_remove(
    names: Annotated[list[str], Argument(metavar="NAME...", help="See `list`.")],
) -> Answer:
    """Delete stacks."""
    from paceline.app.api.machine import stacks_remove as remove_stacks

    were_there = dict(zip(names, remove_stacks(*names), strict=True))
    lines = (f"{name}: {'removed' if was else 'was not there'}" for name, was in were_there.items())
    return answer_of("removed_stacks", were_there, "\n".join(lines))


def _words(text: str) -> tuple[str, ...]:
    """Words with commas between.

    >>> _words("torch, jax")
    ('torch', 'jax')
    """
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _measured_answer(rows: tuple[LedgerRow, ...]) -> Answer:
    from paceline.reporting.screens import measurements as report

    return Answer(
        kind="measurements",
        value=rows,
        text=lambda width: report.measured_text(rows, width=width),
        markdown=lambda: report.measured_markdown(rows),
    )
