"""The public Python API: one function per verb of the command line, under the same names.

Amounts may be written as on the command line (``"24h"``, ``"50usd"``, ``"80GB"``). Results are
frozen dataclasses in SI units; `paceline.to_dict` and `paceline.to_json` turn them into plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Unpack, get_args

from paceline.app.requests.plan_request import (
    load,
    read_calibration,
    read_request,
    task_and_software,
)
from paceline.app.requests.words import check_choice, read_word
from paceline.errors import UnknownNameError

if TYPE_CHECKING:
    from paceline.app.goal_options import InquiryOptions, PlanOptions, RequestOptions
    from paceline.app.requests.mixed_devices import Beside
    from paceline.app.requests.scaling import Scaling
    from paceline.deployment.files import Deployment
    from paceline.planfile import PlanFile
    from paceline.planning.forecast.grid import PredictionGrid
    from paceline.scoring.explain import RowExplanation
    from paceline.scoring.score import ScoreSummary
    from paceline.simulation.observed import Trace

_PREDICT_HELP = "paceline predict --help"


def plan(
    model: object,
    *,
    task: str | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    as_of: str | date | None = None,
    calibration: Path | None = None,
    **options: Unpack[PlanOptions],
) -> PlanFile:
    """Rank complete plans for a job.

    Args:
        model: A zoo name, ``torchvision:NAME``, ``package.module:function``, a workload file, or
            an ``nn.Module``.
        task: ``train`` or ``infer``; if None, ``infer`` where requests are stated, else ``train``.
        seq: Sequence length; the workload's own if None.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        facts: Files with your own devices, offers and machines.
        as_of: Day on which prices are judged; today if None.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        **options: Goal and work, named as on the command line: ``deadline="24h"``.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    return read_request(
        model,
        task=task,
        seq=seq,
        image_size=image_size,
        optimizer=optimizer,
        python=python,
        facts=facts,
        as_of=as_of,
        calibration=calibration,
        **options,
    ).plan()


def why_not(model: object, name: str, **options: Unpack[InquiryOptions]) -> tuple[str, ...]:
    """Why a device or offer is not the first choice, one sentence each.

    Args:
        model: As in `plan`.
        name: Device, family, offer, cloud or own machine.
        **options: Whatever `plan` takes: ``deadline="24h"``, ``task="infer"``, ``as_of=…``.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    return read_request(model, **options).why_not(name)


def _check_keywords(function: Callable[..., object], given: Iterable[str]) -> None:
    """Refuse a keyword that neither a function has nor the options of requests it passes on.

    Raises:
        UnknownNameError: The first of them.
    """
    from paceline.app.goal_options import RequestOptions

    passed_on = RequestOptions.__annotations__
    for name in given:
        if name not in passed_on:
            known = [*(function.__kwdefaults__ or {}), *passed_on]
            raise UnknownNameError.from_name("option", name, known, command=_PREDICT_HELP)


def predict(
    model: object,
    *,
    device: str | None = None,
    batch: Sequence[int] | Literal["max"] = (),
    devices: Sequence[int] = (),
    task: str | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    precision: str | None = None,
    compiler: str | None = None,
    framework: str | None = None,
    checkpointing: str = "none",
    rewrite: str = "",
    sharding: str = "auto",
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    **requests: Unpack[RequestOptions],
) -> PredictionGrid:
    """Predict time, memory and energy on stated devices, or on the whole catalogue.

    Args:
        model: As in `plan`.
        device: Device or family (its default variant), several with commas; ``a100:4`` means four.
            None means every device that a framework runs on.
        batch: Items per device; a ladder that ends where memory does if empty; ``"max"`` for the
            largest that each device holds.
        devices: Device counts, data parallel in training; in inference replicas, or ranks that
            share every layer where one device cannot hold the model.
        task: ``train`` or ``infer``; of the options, else of the model's kind of file if None.
        seq: Sequence length; the workload's own if None.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        precision: One, several with commas; the usual one of each device if None.
        compiler: ``eager`` or ``compiled``, several with commas; ``eager`` or the engine's if None.
        framework: ``torch:2.4`` or ``tensorflow``, which run a batch as it is, or an engine that
            serves: ``vllm``, ``sglang``, ``trtllm``, with a release if wanted (``"vllm 0.12"``);
            None serves language models by vLLM, other files by what reads them. Of training also
            ``trl``, ``unsloth``, ``deepspeed`` and the like: defaults where ``rewrite`` says none.
        checkpointing: What training recomputes in backward: ``none``, ``selective``,
            ``experts``, ``block``, ``full``.
        rewrite: Further fields of `Configuration`: ``"lora_rank=8,offload=optimizer"``.
        sharding: What the devices of a training job split: ``none``, ``zero2``, ``zero3``; or
            ``auto``, which is zero3 where one of them does not hold the state.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        **requests: Lengths of a request and what one item is, see `RequestOptions`.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.progress import progress
    from paceline.app.requests.predictions import SHARDINGS, Question, read_question, stated_work
    from paceline.model.graph.costs import Checkpointing
    from paceline.simulation.simulator import simulate

    _check_keywords(predict, requests)
    stated = dict(requests, optimizer=optimizer, precision=precision, rewrite=rewrite,
                  checkpointing=checkpointing)  # fmt: skip
    task, framework = task_and_software(model, task, framework, stated)
    known = get_args(Checkpointing)
    question = Question(
        device=device, batches=() if batch == "max" else tuple(batch), counts=tuple(devices),
        takes_largest=batch == "max", seq=seq, precision=precision, compiler=compiler,
        framework=framework, rewrite=rewrite, facts=tuple(facts), calibration=calibration,
        checkpointing=read_word(checkpointing, known, "checkpointing", command=_PREDICT_HELP),
        sharding=read_word(sharding, SHARDINGS, "sharding", command=_PREDICT_HELP),
        work=stated_work(requests), trace=requests.get("trace"),
    )  # fmt: skip
    workload = load(
        model, task=task, seq=seq, image_size=image_size,
        optimizer=optimizer, python=python, item=question.work.item, framework=framework,
    )  # fmt: skip
    asked = read_question(question, workload)
    with progress("predicting"):
        return asked.answer(simulate(asked.cases, calibration=asked.calibration))


def trace(
    model: object,
    *,
    device: str | None = None,
    batch: int = 32,
    task: str = "train",
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    precision: str | None = None,
    compiler: str = "eager",
    rewrite: str = "",
    compare: str = "",
    top: int = 10,
    save: Path | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
) -> Trace:
    """Trace a model and take its passes apart: FLOP, bytes, largest ops, memory at the peak.

    Args:
        model: As in `plan`.
        device: Ranks ops by their time on this device; by FLOP if None.
        batch: Items per step.
        task: ``train`` or ``infer``.
        seq: Sequence length; the workload's own if None.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        precision: Name in ``dtypes.PRECISIONS``; the usual one of the device if None, ``bf16``
            without a device.
        compiler: ``eager`` or ``compiled``.
        rewrite: Further fields of `Configuration`: ``"checkpointing=full,attention=math"``.
        compare: Fields changed in a second run of the same, set beside the first.
        top: How many ops to list.
        save: File to write the traced model to, so that it can be shared without its code.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.requests.traces import break_down_workload
    from paceline.model.graph.store import save_workload

    workload = load(
        model, task=task, seq=seq, image_size=image_size, optimizer=optimizer, python=python
    )
    if save is not None:
        save_workload(workload, save)
    return break_down_workload(
        workload,
        device=device,
        batch=batch,
        seq=seq,
        precision=precision,
        compiler=compiler,
        rewrite=rewrite,
        compare=compare,
        top=top,
        facts=facts,
        calibration=calibration,
    )


def scale(
    model: object,
    *,
    device: str | None = None,
    offer: str | None = None,
    counts: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    batch: int | None = None,
    global_batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    precision: str | None = None,
    compiler: str | None = None,
    framework: str | None = None,
    strategy: str | None = None,
    experts: str | None = None,
    beside: str | None = None,
    samples: str | float | None = None,
    epochs: str | float | None = None,
    tokens: str | float | None = None,
    output_tokens: str | float | None = None,
    rewrite: str = "",
    as_of: str | date | None = None,
    calibration: Path | None = None,
    facts: Sequence[Path] = (),
) -> Scaling | Beside:
    """Predict training on more and more devices, and where more stop paying.

    Args:
        model: As in `plan`.
        device: On the largest machines for rent with this device.
        offer: On these machines.
        counts: Numbers of devices.
        batch: Items per device (weak scaling); the smallest that keeps a device busy if None.
        global_batch: Items per step in all (strong scaling).
        seq: Sequence length; the workload's own if None.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        precision: Name in ``dtypes.PRECISIONS``; the usual one of the device if None.
        compiler: ``eager`` or ``compiled``; ``eager`` if None, or what the device has instead.
        framework: What trains, with its release if wanted (``"torch:2.4"``), or a trainer with its
            defaults, which ``rewrite`` overrides; PyTorch's newest release if None.
        strategy: The only one wanted, ``pp2.dp4.tp8@1f1b/mb16``, in replicas; the best if None.
        experts: How ``ep`` ranks exchange tokens: ``tokens-once`` (a dispatcher such as DeepEP),
            ``whole`` (tensor ranks share experts), ``hidden`` (beside another microbatch); several.
        beside: Others that share the batch by speed, ``NAME:COUNT``; ``counts`` is then one number.
        samples: Per epoch; those of the reference job if no work is stated.
        epochs: Passes over them.
        tokens: In all, of a language model.
        output_tokens: What an encoder–decoder is trained to write; as much as it reads if None.
        rewrite: Settings of the step, ``"lora_rank=8"``; what a strategy says is refused.
        as_of: Day on which prices are judged; today if None.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        facts: Files with your own devices and offers.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.requests.scaling import (
        beside_workload,
        read_question,
        scale_workload,
        stated_work,
    )

    work = stated_work(samples=samples, epochs=epochs, tokens=tokens, output_tokens=output_tokens)
    workload, question = read_question(
        model, counts, item=work.item, device=device, offer=offer, global_batch=global_batch,
        seq=seq, image_size=image_size, optimizer=optimizer, python=python, precision=precision,
        compiler=compiler, framework=framework, rewrite=rewrite, as_of=as_of,
        calibration=calibration, facts=facts,
    )  # fmt: skip
    stated = replace(
        question, work=work, batch_per_device=batch, strategy=strategy, experts=experts
    )
    if beside is not None:
        return beside_workload(workload, stated, beside)
    return scale_workload(workload, stated)


def score(
    rows: Path,
    out: Path,
    *,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> ScoreSummary:
    """Predict every row of a table of measurements from its input columns alone.

    Args:
        rows: The table (CSV).
        out: Where one line of predictions per row goes (CSV).
        python: The Python that has torch, for models that must be traced; found if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        on_progress: Called with one line per model; silent if None.

    Raises:
        InvalidInputError: A table that cannot be read, or an answer that cannot be written.
    """
    from paceline.catalog.load import load_catalog
    from paceline.scoring.score import score_rows

    catalog = load_catalog(tuple(facts))
    tell = on_progress or (lambda _: None)
    return score_rows(
        rows,
        out,
        catalog=catalog,
        python=python,
        calibration=read_calibration(calibration),
        on_progress=tell,
    )


def explain(
    rows: Path,
    number: int,
    *,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
) -> RowExplanation:
    """The command that gives the number that `score` has for one row, and what it is times.

    Args:
        rows: The table (CSV).
        number: Which row, counted from 0.
        python: The Python that has torch, for a model that must be traced; found if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.

    Raises:
        InvalidInputError: A table that cannot be read, or a row without an answer.
    """
    from paceline.catalog.load import load_catalog
    from paceline.scoring.completion import read_published
    from paceline.scoring.explain import explain_row

    catalog, own = load_catalog(tuple(facts)), read_calibration(calibration)
    table = read_published(rows)
    return explain_row(table, number, catalog=catalog, python=python, calibration=own)


def deploy(
    plan: PlanFile,
    target: str,
    *,
    command: str = "",
    purpose: str | None = None,
    choice: int = 1,
    name: str | None = None,
    image: str | None = None,
    data: str | None = None,
    checkpoints: str | None = None,
    variant: str = "",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Deployment:
    """Launch files for one choice of a plan, as text; nothing is written.

    Args:
        plan: From `plan` or `read_plan`.
        target: ``slurm``, ``skypilot``, ``kubernetes`` …: `paceline deploy --list` names all.
        command: Training script with its arguments, as typed in a shell.
        purpose: ``train``, ``measure`` or ``serve``; if None, what was planned: a plan of inference
            is served.
        choice: Which choice of the plan, 1 being the first.
        name: Of the job; from the model if None.
        image: Container image; the published one if None.
        data: Path, claim, bucket or URL of the training data.
        checkpoints: Where checkpoints go.
        variant: ``gke-gpu`` or ``gke-tpu`` on Kubernetes.
        settings: Facts of the target, such as ``{"partition": "gpu"}``.

    Raises:
        PacelineError: One of its leaves, with a hint: a fact that is missing is never guessed.
    """
    from paceline.app.requests.deployments import checked_deployment
    from paceline.deployment.program import split_command
    from paceline.deployment.settings import DeploySettings, Purpose

    check_choice(plan, choice)
    chosen = DeploySettings(
        command=split_command(command),
        purpose=read_word(
            purpose or ("serve" if plan.workload.task == "infer" else "train"),
            get_args(Purpose),
            "purpose",
            command="paceline deploy --help",
        ),
        choice=choice - 1,
        name=name,
        image=image,
        data=data,
        checkpoints=checkpoints,
        variant=variant,
        options=settings,
    )
    return checked_deployment(plan, target, chosen)
