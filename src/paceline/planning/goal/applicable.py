"""Options that say nothing about the job they are given for: refused, not overlooked."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Workload
from paceline.planning.goal.amounts import Job, is_generation
from paceline.planning.goal.goal import Goal, Work
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """An option, why it says nothing here, and what to do instead."""

    is_stated: bool
    option: str
    why: str
    hint: str


def check_applicable(goal: Goal, work: Work, job: Job, workload: Workload) -> None:
    """Pass if every stated limit and amount can be kept or broken by the job.

    Raises:
        InvalidInputError: One cannot.
    """
    refusals = (
        _of_training(goal, workload)
        if workload.task == "train"
        else _of_inference(goal, work, workload)
    )
    refusals = (*refusals, *_of_endless(goal, work, job), *_of_requests(work, workload))
    _refuse(refusals)


def check_requests(work: Work, workload: Workload) -> None:
    """Pass if what is stated of requests is stated of a model that answers them.

    Raises:
        InvalidInputError: It answers none.
    """
    _refuse(_of_requests(work, workload))


def _refuse(refusals: Iterable[_Refusal]) -> None:
    for one in refusals:
        if one.is_stated:
            raise InvalidInputError(f"`{one.option}` says nothing here: {one.why}", hint=one.hint)


def _of_training(goal: Goal, workload: Workload) -> tuple[_Refusal, ...]:
    return tuple(
        _Refusal(
            is_stated=limit is not None,
            option=option,
            why=f"{workload.title} is trained, and answers nobody",
            hint=f"add --task infer, or leave {option} out and state a --deadline",
        )
        for option, limit in (("--latency", goal.latency_s), ("--ttft", goal.ttft_s))
    )


def _of_inference(goal: Goal, work: Work, workload: Workload) -> tuple[_Refusal, ...]:
    return (
        _Refusal(
            is_stated=goal.ttft_s is not None and not is_generation(workload),
            option="--ttft",
            why=f"{workload.title} answers at once, not token by token",
            hint="state the time of one batch with --latency",
        ),
        _Refusal(
            is_stated=goal.is_ideal,
            option="--ideal",
            why="what is left out beside the steps is of training",
            hint="leave it out",
        ),
        _Refusal(
            is_stated=goal.hour_value_usd is not None and goal.objective != "balanced",
            option="--hour-value",
            why="nothing here is weighed against hours",
            hint="add --objective balanced",
        ),
        _Refusal(
            is_stated=goal.objective == "balanced" and work.requests_per_s is not None,
            option="--objective balanced",
            why="a service has no end to wait for",
            hint="leave it out: services are ranked by their cost",
        ),
        _Refusal(
            is_stated=goal.global_batch is not None,
            option="--global-batch",
            why="inference takes no optimizer steps",
            hint="leave it out, or fix the batch of each device with --pin batch=8",
        ),
        _Refusal(
            is_stated=work.requests_per_s is not None and work.concurrency is not None,
            option="--concurrency",
            why="requests come at a rate, and as many are in flight as it makes",
            hint="give either --rps or --concurrency",
        ),
        _Refusal(
            is_stated=work.requests_per_s is not None
            and not (work.num_samples is work.num_tokens is work.num_epochs is None),
            option="--rps",
            why="an amount of work is given too, and a service has none",
            hint="give either --rps, or an amount with --samples or --tokens",
        ),
    )


def _of_endless(goal: Goal, work: Work, job: Job) -> tuple[_Refusal, ...]:
    is_service = work.requests_per_s is not None
    return (
        _Refusal(
            is_stated=goal.deadline_s is not None and job.amount.items_per_epoch is None,
            option="--deadline",
            why="a service has no end" if is_service else "no amount of work is known",
            hint="state a --latency"
            if is_service
            else "say how much with --tokens, or with --samples and --epochs",
        ),
        *(
            _Refusal(
                is_stated=size is not None and job.amount.items_per_epoch is None,
                option=option,
                why="it is paid for a whole job, and this has no end",
                hint="say how much is to be done, or leave it out",
            )
            for option, size in (("--storage", goal.storage_bytes), ("--egress", goal.egress_bytes))
        ),
    )


def _of_requests(work: Work, workload: Workload) -> tuple[_Refusal, ...]:
    default, generates = Work(), is_generation(workload)
    writes_targets = f"target={work.output_tokens}" in workload.stated_item.split()
    return tuple(
        _Refusal(
            is_stated=given != usual and not generates and not is_target,
            option=option,
            why="no text is generated",
            hint="leave it out; it is for language models with `--task infer`",
        )
        for option, given, usual, is_target in (
            ("--prompt-tokens", work.prompt_tokens, default.prompt_tokens, False),
            ("--output-tokens", work.output_tokens, default.output_tokens, writes_targets),
            ("--concurrency", work.concurrency, default.concurrency, False),
        )
    )
