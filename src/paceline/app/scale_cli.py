"""``paceline scale``: what each further device adds, and where more stop paying."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import scale as scale_model
from paceline.app.beside import Beside
from paceline.app.command_line import Commands, Option
from paceline.app.goal_options import JOB_OPTIONS
from paceline.app.option_table import takes
from paceline.app.output import Answer, say
from paceline.app.scaling import Scaling


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("scale", scale)


@takes(*JOB_OPTIONS)
def scale(
    model: common.Model,
    device: Annotated[
        str | None, Option(metavar="NAME", help="On the largest machines with this device.")
    ] = None,
    offer: Annotated[str | None, Option(metavar="NAME", help="On these machines.")] = None,
    counts: Annotated[
        str, Option(metavar="1,2,4,8", help="Device counts, commas between.")
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
            "each place, experts not shared by tensor ranks, hidden behind another microbatch.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        Option(metavar="NAME:COUNT", help="Other devices that share the batch, by their speed."),
    ] = None,
    seq: common.Seq = None,
    image_size: common.ImageSize = None,
    optimizer: common.Optimizer = None,
    python: common.Python = None,
    precision: common.Precision = None,
    compiler: common.Compiler = "eager",
    rewrite: common.SearchedRewrite = "",
    as_of: common.AsOf = None,
    calibration: common.Calibration = None,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
    **values: Any,
) -> None:
    """Show throughput, efficiency, time and cost of training on more and more devices."""
    wanted = common.form_of(form, is_json=is_json)
    found = scale_model(
        model,
        device=device,
        offer=offer,
        counts=common.whole_numbers(counts, "device count"),
        batch=batch,
        global_batch=global_batch,
        seq=seq,
        image_size=image_size,
        optimizer=optimizer,
        python=python,
        precision=precision,
        compiler=compiler or "eager",
        strategy=strategy,
        experts=experts,
        beside=beside,
        rewrite=rewrite,
        as_of=as_of,
        calibration=calibration,
        facts=facts or (),
        **values,
    )
    say(_answer(found), wanted, output)


def _answer(found: Scaling | Beside) -> Answer:
    from paceline.report.scaling import scaling_markdown, scaling_text
    from paceline.report.unequal import unequal_markdown, unequal_text

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
    return Answer(
        kind="scaling",
        value=found,
        text=lambda width: scaling_text(*curve, width=width),
        markdown=partial(scaling_markdown, *curve),
    )
