"""``paceline scale``: what each further device adds, and where more stop paying."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypedDict, Unpack

from paceline.app import options as common
from paceline.app.api.planning import scale as scale_model
from paceline.app.command_line import Commands, Option
from paceline.app.goal_options import JOB_OPTIONS, SearchedRewrite
from paceline.app.option_table import takes
from paceline.app.output import Answer
from paceline.app.requests.mixed_devices import Beside
from paceline.app.requests.scaling import Scaling


class _SearchOptions(TypedDict, total=False):
    precision: common.Precision
    compiler: Annotated[
        str | None, Option(help="eager or compiled. eager without, or what the device has.")
    ]
    framework: Annotated[
        str | None,
        Option(
            help="What trains, with its release if wanted: torch:2.4, tensorflow, jax; or "
            "torchtune, deepspeed and the like, by their defaults. torch without."
        ),
    ]
    rewrite: SearchedRewrite
    as_of: common.AsOf
    calibration: common.Calibration
    facts: common.RepeatedFacts


class ScaleOptions(common.TracedOptions, _SearchOptions, total=False):
    """How the model is traced and run, and by what facts; those of the job are passed on too."""


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("scale", scale)


@common.answers
@takes(*JOB_OPTIONS)
def scale(
    model: common.Model,
    device: Annotated[
        str | None, Option(metavar="NAME", help="On the largest machines with this device.")
    ] = None,
    offer: Annotated[str | None, Option(metavar="NAME", help="On these machines.")] = None,
    counts: Annotated[
        str, Option(metavar="1,2,4,8", help="Device count; several with commas.")
    ] = "1,2,4,8,16,32,64",
    batch: Annotated[int | None, Option(help="Items per device (weak scaling).")] = None,
    global_batch: Annotated[
        int | None, Option(help="Items per step in all (strong scaling).")
    ] = None,
    strategy: Annotated[
        str | None,
        Option(metavar="pp2.dp4.tp8", help="This strategy alone; dp follows the device count."),
    ] = None,
    experts: Annotated[
        str | None,
        Option(
            metavar="tokens-once,whole,hidden",
            help="How expert ranks exchange tokens, of a stated strategy with an ep axis: once to "
            "each place, experts not shared by tensor ranks, hidden behind another microbatch; "
            "several with commas.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        Option(metavar="NAME:COUNT", help="Other devices that share the batch, by their speed."),
    ] = None,
    **options: Unpack[ScaleOptions],
) -> Answer:
    """Show throughput, efficiency, time and cost of training on more and more devices."""
    found = scale_model(
        model,
        device=device,
        offer=offer,
        counts=common.whole_numbers(counts, "device count"),
        batch=batch,
        global_batch=global_batch,
        strategy=strategy,
        experts=experts,
        beside=beside,
        **options,
    )
    return _answer(found)


def _answer(found: Scaling | Beside) -> Answer:
    from paceline.reporting.headlines import scaled_headline
    from paceline.reporting.screens.scaling import scaling_markdown, scaling_text
    from paceline.reporting.screens.unequal import unequal_markdown, unequal_text

    training, unit = f"{found.title} · training", found.sample_unit
    if isinstance(found, Beside):
        step = (training, found.assumptions, found.step, unit)
        return Answer(
            kind="beside",
            value=found,
            text=lambda width: unequal_text(*step, width=width),
            markdown=partial(unequal_markdown, *step),
        )
    curve = (f"{training} · {found.device}", found.assumptions, found.curve, unit)
    head = scaled_headline(found.device, found.curve, unit)
    return Answer(
        kind="scaling",
        value=found,
        text=lambda width: scaling_text(*curve, width=width, head=head),
        markdown=partial(scaling_markdown, *curve, head=head),
    )
