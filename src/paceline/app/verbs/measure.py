"""``paceline measure``, ``doctor``, ``compare`` and ``stacks``: the truth on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.api import machine as api
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.option_table import asks
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


def _several(told: str, default: str, metavar: str = "") -> Any:
    """An option whose value names several."""
    return Annotated[str, Option(f"{told}; several with commas.", metavar, default=default)]


@common.answers
@asks(
    api.measure,
    models=Annotated[
        list[str],
        Argument(
            "MODEL...",
            "torchvision's by their names, timm:NAME, package.module:function, or of the zoo: "
            "mnist-cnn, lstm, gpt2, bert-base, …; with --on also a plan file.",
        ),
    ],
    batch=_several("Items per device, or the largest that fits", "1,4,16", "1,4,16|max"),
    devices=_several("Devices, or CPU processes", "1", "1,2"),
    mode=_several(
        "step, forward-backward, forward, or usual: a step where the stack trains", "usual"
    ),
    precision=_several("fp32, tf32, bf16, fp16", "fp32"),
    compiler=_several("eager, compiled, xla, or usual: as people run it", "usual"),
    stack=Annotated[
        str | None, Option("Stack, or this Python's torch without; several with commas.")
    ],
    html=Option("Write a report that opens offline."),
    on=common.On,
    settings=common.SetThere,
    directory=common.FolderThere,
    runs=common.Runs,
    python=common.Python,
    device=Annotated[str, Option("cpu, gpu, or auto; several with commas.", default="auto")],
    threads=Annotated[int | None, Option("CPU threads of each process.")],
    seq=Annotated[int, Option("Sequence length of texts.", default=128)],
    image_size=common.ImageSize,
    optimizer=Annotated[
        str, Option("sgd, adam or adamw; a workload's own goes first.", default="sgd")
    ],
    channels_last=Annotated[bool, Option("Images in NHWC (PyTorch).", default=False)],
    timeout=Annotated[str, Option("Longest time of one cell.", default="10min")],
    memory=Annotated[str | None, Option("Cap of main memory of one cell.")],
    seconds=Annotated[float, Option("Shortest time to sample a cell.", default=1.0)],
    profile=Annotated[Path | None, Option("Folder for a Chrome trace of every cell (PyTorch).")],
    store=common.Store,
)
def measure(
    *, models: Sequence[str], html: Path | None, settings: Sequence[str] | None, batch: str,
    devices: str, mode: str, precision: str, compiler: str, stack: str | None, **asked: Any,
) -> Answer:  # fmt: skip
    """Measure models here or elsewhere: batch against devices, precision, compiler and stack.

    Each cell runs in a process of its own; running out of memory, crashing and hanging are values
    of the table. Ctrl-C keeps what was measured, and the same command goes on from there. With
    --on another machine measures, those of a plan each around its own choice, and the records come
    back into the store here.
    """
    from paceline.app.truth.measuring import Talker
    from paceline.app.verbs.run import tell

    rows = api.measure(
        *models, html=html, on_progress=Talker(sys.stderr), on_notice=tell,
        settings=common.pairs(settings or []),
        batch=None if batch == "max" else common.whole_numbers(batch, "batch"),
        devices=common.whole_numbers(devices, "number of devices"),
        mode=_words(mode), precision=_words(precision), compiler=_words(compiler),
        stack=_words(stack or ""),
        **asked,
    )  # fmt: skip
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
    from paceline.reporting.screens import machines

    found = api.doctor(log)
    text = machines.doctor_text(
        found.facts,
        found.machine,
        found.findings,
        frameworks=found.frameworks,
        stacks=found.stacks,
        log=found.log,
        unexplained=found.unexplained,
    )
    return Answer(kind="doctor", value=found, text=lambda width: text, markdown=lambda: text)


@asks(
    api.compare,
    before=Argument("BEFORE", "Store folder or .jsonl file."),
    after=Argument("AFTER", "Store folder or .jsonl file."),
    tolerance=Option("Change of the median that does not matter, as a fraction."),
    is_json=common.Json,
    output=common.Output,
)
def compare(*, is_json: bool, output: Path | None, **asked: Any) -> None:
    """Judge two sets of measurements cell by cell; status 5 if anything got slower."""
    from paceline.measurements.compare import require_no_regression
    from paceline.reporting.screens.measurements import comparison_text

    comparisons = api.compare(**asked)
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
    from paceline.execution.stacks import stack_specs, stacks_folder
    from paceline.reporting.screens.machines import stacks_table

    created = api.stacks_list()
    table = stacks_table(created, tuple(stack_specs().values()))
    return answer_of("stacks", created, table, f"in {stacks_folder()}")


@common.answers
def stacks_create(
    names: Annotated[list[str], Argument(metavar="NAME[==VERSION]...", help="See `list`.")],
) -> Answer:
    """Make stacks with pip as you have configured it; those that exist are left as they are."""
    made = api.stacks_create(*names, on_progress=lambda text: print(text, file=sys.stderr))
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
    lines = api.stacks_check(*(names or ()))
    return answer_of("stack_checks", lines, "\n".join(lines))


@common.answers
def stacks_remove(
    names: Annotated[list[str], Argument(metavar="NAME...", help="See `list`.")],
) -> Answer:
    """Delete stacks."""
    were_there = dict(zip(names, api.stacks_remove(*names), strict=True))
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
