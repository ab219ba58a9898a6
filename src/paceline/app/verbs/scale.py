"""``paceline scale``: what each further device adds, and where more stop paying."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import planning as api
from paceline.app.command_line import Option
from paceline.app.goal_options import JOB_OPTIONS, SearchedRewrite
from paceline.app.option_table import asks, takes
from paceline.app.output import Answer
from paceline.app.requests.mixed_devices import Beside
from paceline.app.requests.scaling import Scaling

#: How the model is traced and run, and by what facts; those of the job are passed on too.
SCALED = {
    **common.TRACED,
    "precision": common.Precision,
    "compiler": Annotated[
        str | None, Option("eager or compiled. eager without, or what the device has.")
    ],
    "framework": Annotated[
        str | None,
        Option(
            "What trains, with its release if wanted: torch:2.4, tensorflow, jax; or torchtune, "
            "deepspeed and the like, by their defaults. torch without."
        ),
    ],
    "rewrite": SearchedRewrite,
    "as_of": common.AsOf,
    "calibration": common.Calibration,
    "facts": common.Facts,
}


@common.answers
@takes(*JOB_OPTIONS)
@asks(
    api.scale,
    model=common.Model,
    device=Option("On the largest machines with this device.", "NAME"),
    offer=Option("On these machines.", "NAME"),
    counts=Annotated[
        str,
        Option("Device count; several with commas.", "1,2,4,8", default="1,2,4,8,16,32,64"),
    ],
    batch=Option("Items per device (weak scaling)."),
    global_batch=Option("Items per step in all (strong scaling)."),
    strategy=Option("This strategy alone; dp follows the device count.", "pp2.dp4.tp8"),
    experts=Option(
        "How expert ranks exchange tokens, of a stated strategy with an ep axis: once to each "
        "place, experts not shared by tensor ranks, hidden behind another microbatch; several "
        "with commas.",
        "tokens-once,whole,hidden",
    ),
    beside=Option("Other devices that share the batch, by their speed.", "NAME:COUNT"),
    **SCALED,
)
def scale(*, counts: str, **asked: Any) -> Answer:
    """Show throughput, efficiency, time and cost of training on more and more devices."""
    return _answer(api.scale(counts=common.whole_numbers(counts, "device count"), **asked))


def _answer(found: Scaling | Beside) -> Answer:
    from paceline.reporting.figures import ItemRate
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
    rate = ItemRate(unit=found.rate_unit, per_item=found.samples_per_item)
    curve = (f"{training} · {found.device}", found.assumptions, found.curve, rate)
    head = scaled_headline(found.device, found.curve, rate)
    return Answer(
        kind="scaling",
        value=found,
        text=lambda width: scaling_text(*curve, width=width, head=head),
        markdown=partial(scaling_markdown, *curve, head=head),
    )
