"""``paceline predict``: time, memory and energy on devices that the user names, or on all."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.api import planning as api
from paceline.app.command_line import Option
from paceline.app.option_table import asks
from paceline.app.output import Answer
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.planning.forecast.grid import PredictionGrid


#: Lengths of a request, what one item of inference is, and the requests that come.
_REQUESTS = {
    "prompt_tokens": Annotated[
        int | None, Option("Tokens in, of one request; 512 of a language model without.")
    ],
    "output_tokens": Annotated[
        int | None, Option("Tokens out, of one request (128 without) or of a training target.")
    ],
    "denoising_steps": Annotated[
        int | None, Option("Steps of one picture or clip; those of its pipeline without.")
    ],
    "guidance": Annotated[
        str | None,
        Option("yes or no: whether each step runs without the prompt too; its pipeline's."),
    ],
    "sound": Annotated[str | None, Option("Length of one recording that is heard.", "45s")],
    "beams": Annotated[
        int | None, Option("Answers that a search keeps beside each other; one without.")
    ],
    "prefix_share": Annotated[
        str | None, Option("Of a prompt, what the engine finds in its cache.", "0.8")
    ],
    "adapters": Annotated[
        str | None,
        Option("LoRA adapters, of which each request asks for one.", "count=32,rank=16"),
    ],
    "speculate": Annotated[
        str | None,
        Option(
            "Tokens guessed (by ngram, mtp or a model) and then checked in a step.",
            "draft=mtp,tokens=3,acceptance=0.7",
        ),
    ],
    "rps": Annotated[
        float | None,
        Option("Requests per second that come to an engine: what they see, by percentile."),
    ],
    "concurrency": Annotated[int | None, Option("The same of requests kept in flight.")],
    "trace": Annotated[
        Path | None, Option("The same of a CSV file: arrival_s, prompt_tokens, output_tokens.")
    ],
    "spread": Annotated[
        float | None, Option("How far lengths of requests spread, over their mean.")
    ],
}


@common.answers
@asks(
    api.predict,
    model=common.Model,
    device=common.Devices,
    batch=Annotated[
        str | None,
        Option("Items per device, several with commas; or the largest that fits.", "1,8,32|max"),
    ],
    devices=Annotated[str | None, Option("Device count; several with commas.", "1,2,4,8")],
    machine=Annotated[
        str | None,
        Option(
            "One job on one machine, both as a line of text: the model is then a job such as "
            "`gpt2 train bf16 eager dp8 batch=4`.",
            "8xH100@LINK,LINK",
        ),
    ],
    **common.TRACED,
    task=common.AnswerTask,
    precision=Option("bf16, fp16, tf32, fp32, …; several with commas."),
    compiler=Option("eager or compiled; several with commas. eager without, or the engine's own."),
    framework=Option(
        "What runs it: vllm, sglang, trtllm, tgi, lmdeploy or llamacpp serve; torch:2.4, "
        "tensorflow, tensorrt, onnxruntime … run a batch as it is. vllm without, for language "
        "models. Of training also trl, unsloth, torchtune, deepspeed …, by their defaults."
    ),
    checkpointing=Option("Recomputed in backward: none, selective, experts, block or full."),
    rewrite=common.Rewrite,
    sharding=Option(
        "What devices of a training job split: none, zero2, zero3 (FSDP); auto is zero3 where one "
        "of them does not hold the training state."
    ),
    **_REQUESTS,
    **common.KNOWN,
)
def predict(
    *, model: str, device: str | None, batch: str | None, devices: str | None,
    machine: str | None, **options: Any,
) -> Answer:  # fmt: skip
    """Predict a model on devices: batch against device count, with OOM where it does not fit.

    Without --device: all devices of the catalogue, best first. Status 3 if nothing fits.
    """
    if machine is not None:
        return _stated(model, machine, options)
    grid = api.predict(
        model,
        device=device,
        batch="max" if batch == "max" else common.whole_numbers(batch, "batch"),
        devices=common.whole_numbers(devices, "device count"),
        **options,
    )
    return _answer(grid, is_ranking=device is None)


def _stated(job: str, machine: str, options: Mapping[str, Any]) -> Answer:
    from paceline.app.requests.stated_job import predict_stated, stated_text

    taken = ("image_size", "optimizer", "python", "facts", "calibration")
    usual = inspect.signature(predict).parameters
    if other := [
        name for name, value in options.items()
        if name not in taken and value != usual[name].default
    ]:  # fmt: skip
        raise InvalidInputError(
            f"`--{other[0].replace('_', '-')}` says nothing beside --machine",
            hint="the job's own line says how it runs",
        )
    how = {name: options[name] for name in taken if options.get(name) is not None}
    found = predict_stated(job, machine, **how)
    text = stated_text(found)
    return Answer(kind="step", value=found, text=lambda _: text, markdown=lambda: text)


def _answer(grid: PredictionGrid, *, is_ranking: bool) -> Answer:
    from paceline.app.requests.predictions import no_figure
    from paceline.reporting.screens import predictions as report

    failure = no_figure(grid, is_ranking=is_ranking)
    if is_ranking:
        return Answer(
            kind="prediction_ranking",
            value=grid,
            text=lambda width: report.ranking_text(grid, width=width),
            markdown=lambda: report.ranking_markdown(grid),
            failure=failure,
        )
    return Answer(
        kind="predictions",
        value=grid,
        text=lambda width: report.grid_text(grid, width=width),
        markdown=lambda: report.grid_markdown(grid),
        failure=failure,
    )
