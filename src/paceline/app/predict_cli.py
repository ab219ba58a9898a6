"""``paceline predict``: time, memory and energy on devices that the user names, or on all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.api import predict as predict_model
from paceline.app.command_line import Commands, Option
from paceline.app.output import Answer

if TYPE_CHECKING:
    from paceline.plan.grid import PredictionGrid


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("predict", predict)


@common.answers
def predict(
    model: common.Model,
    device: common.Devices = None,
    batch: Annotated[
        str | None, Option(metavar="1,8,32", help="Items per device, commas between.")
    ] = None,
    devices: Annotated[
        str | None, Option(metavar="1,2,4,8", help="Device counts, commas between.")
    ] = None,
    task: common.Task = "train",
    seq: common.Seq = None,
    image_size: common.ImageSize = None,
    optimizer: common.Optimizer = None,
    python: common.Python = None,
    precision: common.Precision = None,
    compiler: common.Compiler = "eager",
    checkpointing: Annotated[
        str, Option(help="Recomputed in backward: none, selective, block or full.")
    ] = "none",
    rewrite: common.Rewrite = "",
    sharding: Annotated[
        str, Option(help="What devices of a training job split: none, zero2 or zero3 (FSDP).")
    ] = "none",
    prompt_tokens: Annotated[int, Option(help="Tokens in, of one request.")] = 512,
    output_tokens: Annotated[int, Option(help="Tokens out, of one request.")] = 128,
    facts: common.Facts = None,
    calibration: common.Calibration = None,
) -> Answer:
    """Predict a model on devices: batch against device count, with OOM where it does not fit.

    Without --device: all devices of the catalogue, best first.
    """
    grid = predict_model(
        model,
        device=device,
        batch=common.whole_numbers(batch, "batch"),
        devices=common.whole_numbers(devices, "device count"),
        task=task,
        seq=seq,
        image_size=image_size,
        optimizer=optimizer,
        python=python,
        precision=precision,
        compiler=compiler or "eager",
        checkpointing=checkpointing,
        rewrite=rewrite,
        sharding=sharding,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        facts=facts or (),
        calibration=calibration,
    )
    return _answer(grid, is_ranking=device is None)


def _answer(grid: PredictionGrid, *, is_ranking: bool) -> Answer:
    from paceline.report import predictions as report

    if is_ranking:
        return Answer(
            kind="prediction_ranking",
            value=grid,
            text=lambda width: report.ranking_text(grid, width=width),
            markdown=lambda: report.ranking_markdown(grid),
        )
    return Answer(
        kind="predictions",
        value=grid,
        text=lambda width: report.grid_text(grid, width=width),
        markdown=lambda: report.grid_markdown(grid),
    )
