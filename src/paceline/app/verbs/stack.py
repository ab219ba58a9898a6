"""``paceline stack``: which software works together on a device."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Annotated, Unpack

from paceline.app import options as common
from paceline.app.api.stack import HostOptions, StackOptions
from paceline.app.api.stack import stack_check as check
from paceline.app.api.stack import stack_explain as explain
from paceline.app.api.stack import stack_images as images_side_by_side
from paceline.app.api.stack import stack_resolve as resolve
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.option_table import TextOption, takes
from paceline.app.output import Answer, answer_of
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_devices
from paceline.errors import PacelineError
from paceline.reporting.screens import stacks as report
from paceline.stack.queries import no_image, nothing_works

_HOST = (
    TextOption(
        name="gpu",
        example="3090",
        help="Any device of the catalogue, sm_86, an LLVM target, cpu, or here.",
    ),
    TextOption(name="driver", example="550", help="Driver release, or its branch."),
)
_CONSTRAINTS = (
    *_HOST,
    TextOption(name="cuda", example="12.4", help="CUDA release or line."),
    TextOption(name="rocm", example="6.4", help="ROCm release or line."),
    TextOption(name="python", example="3.12", help="Python minor version."),
    TextOption(name="framework", example="torch", help="torch, tensorflow, jax or cuda."),
    TextOption(name="release", example="2.9", help="Framework release or line."),
    TextOption(name="compiler", example="compiled", help="eager or compiled."),
    TextOption(name="system", example="linux-x86_64", help="Or linux-aarch64, windows, macos."),
)


def register(app: Commands) -> None:
    """Add the verb with its three questions and the images."""
    group = app.add_group(
        "stack",
        "Which driver, CUDA or ROCm, Python and framework work together, and why not.",
        elsewhere=_elsewhere,
    )
    group.add_verb("resolve", resolve_stack)
    group.add_verb("explain", explain_stack)
    group.add_verb("check", check_stack)
    group.add_verb("images", choose_images)


def _elsewhere(word: str) -> str:
    """What answers a device, or a model, that was typed in the place of a question."""
    try:
        find_devices(load_catalog(), word)
    except PacelineError:
        return (
            "software is that of a device: `paceline stack resolve --gpu DEVICE`; with which "
            f"release a model runs where says `paceline plan {shlex.quote(word)} …`"
        )
    return f"the newest that works on it: `paceline stack resolve --gpu {shlex.quote(word)}`"


@common.answers
@takes(*_CONSTRAINTS)
def resolve_stack(
    num: Annotated[int, Option(help="How many combinations to list.")] = 6,
    **constraints: Unpack[StackOptions],
) -> Answer:
    """List the newest combinations that work; status 6 with the smallest contradictions if none."""
    common.check_above_zero(num=num)
    found = resolve(num=num, **constraints)
    return Answer(
        kind="stack_resolution",
        value=found,
        text=lambda width: report.resolution_text(found, width=width),
        markdown=lambda: report.resolution_markdown(found),
        failure=next(map(nothing_works, found.conflicts), None),
    )


@common.answers
@takes(*_CONSTRAINTS)
def explain_stack(
    **constraints: Unpack[StackOptions],
) -> Answer:
    """Show the newest combination with each rule that bears on it and its source; 6 if none."""
    found = explain(**constraints)
    return Answer(
        kind="stack_explanation",
        value=found,
        text=lambda width: report.explanation_text(found, width=width),
        markdown=lambda: report.explanation_text(found),
        failure=next(map(nothing_works, found.conflicts), None),
    )


@common.answers
@takes(*_CONSTRAINTS)
def check_stack(
    **constraints: Unpack[StackOptions],
) -> Answer:
    """Exit with status 0 and the combination if these work together, else 6 and the reason."""
    found = check(**constraints)
    return Answer(
        kind="stack_combination",
        value=found,
        text=lambda width: report.combination_text(found, width=width),
        markdown=lambda: report.combination_text(found),
    )


@common.answers
@takes(*_HOST)
def choose_images(
    toolkits: Annotated[list[str], Argument(metavar="CUDA", help="CUDA lines: 11.8 12.4")],
    **host: Unpack[HostOptions],
) -> Answer:
    """Choose a container image per CUDA line, side by side on one host; 6 if one has none."""
    found = images_side_by_side(toolkits, **host)
    answer = answer_of("stack_images", found, report.image_table(found))
    return replace(answer, failure=no_image(found))
