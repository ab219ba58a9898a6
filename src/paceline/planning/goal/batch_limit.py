"""How many items an optimizer step may hold so that a job still takes a useful number of steps.

A recipe that is published for a model says how large its batches may be. It speaks of training from
scratch: fine-tuning sees far fewer items, and would take a handful of steps in such batches. So a
job takes at least as many steps as the shortest published one of its kind, unless its batches are
already so small that they do no harm. They are no smaller than published ones either: a device that
holds fewer items accumulates their gradients. Language models without a recipe of their own follow
the published law of batches that train near the best: they grow with the compute of the whole job.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import Literal

from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.settings import read_settings
from paceline.planning.goal.amounts import Job
from paceline.shipped import shipped_rows
from paceline.values import dataclass

Kind = Literal["training", "fine-tuning"]
#: Tokens per step where neither the goal nor the workload limits the global batch.
_TOKENS_PER_STEP = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """Most items per optimizer step, and least.

    Attributes:
        max_items: The limit; None where nothing is known.
        why: What sets it, as the rest of a sentence; empty without a limit.
        fewest_steps: Optimizer steps of the shortest published job of its kind; 0 in inference.
        least_items: Of the smallest published batch; a device that holds fewer accumulates.
    """

    max_items: int | None
    why: str = ""
    fewest_steps: int = 0
    least_items: int = 1

    @property
    def words(self) -> str:
        """The limit as an assumption; empty without one."""
        if self.max_items is None:
            return ""
        return f"global batch up to {self.max_items:,}, {self.why} (change with --global-batch)"


def batch_limit_of(workload: Workload, job: Job, rewrite: str = "") -> BatchLimit:
    """The largest global batch of a job that states none.

    Args:
        workload: What is trained; inference has no limit.
        job: How much.
        rewrite: Settings of the job, such as ``lora_rank=16``.
    """
    if workload.task != "train":
        return BatchLimit(max_items=None)
    kind = kind_of(workload, job, rewrite)
    limits = [
        _of_recipe(workload, kind), _of_steps(job, kind), _of_epochs(job, kind),
        _of_compute(workload, job, kind),
    ]  # fmt: skip
    known = [limit for limit in limits if limit.max_items is not None]
    found = min(known, key=lambda limit: limit.max_items or 0, default=BatchLimit(max_items=None))
    least = min(_fact(kind, "least_batch"), found.max_items or 1)
    return replace(found, fewest_steps=_fact(kind, "fewest_steps"), least_items=least)


def most_items(limit: BatchLimit, seq: int) -> int:
    """Items of a limit; of four million tokens in sequences of ``seq`` where it is not known.

    >>> most_items(BatchLimit(max_items=None), 4096)
    1024
    """
    return limit.max_items or max(1, _TOKENS_PER_STEP // seq)


def kind_of(workload: Workload, job: Job, rewrite: str = "") -> Kind:
    """Whether a job starts from weights that are there.

    It does where some weights are frozen, or where a language model sees fewer tokens than it has
    parameters: published ones saw twenty times as many (Hoffmann et al. 2022, arXiv 2203.15556).
    """
    settings = read_settings(rewrite, Configuration())
    is_frozen = settings.lora_rank > 0 or bool(settings.frozen)
    tokens = (job.num_samples or 0.0) * (job.num_epochs or 1.0)
    is_short = workload.sample_unit == "tokens" and 0 < tokens < workload.num_parameters
    return "fine-tuning" if is_frozen or is_short else "training"


def _of_recipe(workload: Workload, kind: Kind) -> BatchLimit:
    if kind == "fine-tuning":
        return BatchLimit(max_items=_fact(kind, "largest_batch"), why="as fine-tuning is published")
    if workload.max_global_batch is not None:
        return BatchLimit(
            max_items=workload.max_global_batch, why="as the reference recipe trains well"
        )
    return BatchLimit(
        max_items=_published_batch(workload.name), why="as networks of its kind are published"
    )


def _published_batch(name: str) -> int | None:
    """The largest that a paper says of a model, or of the kind it belongs to."""
    rows = shipped_rows("planning", "recipe_batches.csv")
    found = (int(row["largest_batch"]) for row in rows if re.fullmatch(row["entry"], name))
    return next(found, None)


def _of_compute(workload: Workload, job: Job, kind: Kind) -> BatchLimit:
    """The power of two nearest to the batch that trains best on so much compute.

    A law of pre-training on text: nothing is said of fine-tuning, of other items, nor of a model
    whose own recipe is known. Its coefficients stand in ``data/batch_limits.csv``.
    """
    items, tokens = job.amount.items_per_epoch, job.num_samples
    is_text = workload.sample_unit == "tokens" and kind == "training"
    if not is_text or workload.max_global_batch is not None or not items or not tokens:
        return BatchLimit(max_items=None)
    flop = 6.0 * workload.num_parameters * tokens * (job.num_epochs or 1.0)
    best_tokens = _figure(kind, "tokens_factor") * flop ** _figure(kind, "compute_exponent")
    best = best_tokens * items / tokens
    return BatchLimit(
        max_items=2 ** max(round(math.log2(best)), 0) if best > 1 else 1,
        why=f"near the {best_tokens / 1e6:.2g} M tokens that train best on so much compute",
    )


def _of_steps(job: Job, kind: Kind) -> BatchLimit:
    """The largest power of two that leaves enough steps."""
    if job.amount.items_per_epoch is None:
        return BatchLimit(max_items=None)
    num_items = job.amount.items_per_epoch * job.amount.num_epochs
    return _leaving(_fact(kind, "fewest_steps"), num_items, kind, what=kind)


def _of_epochs(job: Job, kind: Kind) -> BatchLimit:
    """The largest power of two that leaves enough steps in each epoch.

    Nothing is said of fine-tuning, which sees its samples once or a few times, nor of one epoch,
    which is all of the work.
    """
    items = job.amount.items_per_epoch
    if items is None or kind == "fine-tuning" or job.amount.num_epochs <= 1:
        return BatchLimit(max_items=None)
    return _leaving(_fact(kind, "fewest_steps_an_epoch"), items, kind, what="an epoch")


def _leaving(fewest: int, num_items: float, kind: Kind, *, what: str) -> BatchLimit:
    """The largest power of two in which so many items take so many steps."""
    harmless = _fact(kind, "harmless_batch")
    largest = max(int(num_items / fewest), harmless)
    return BatchLimit(
        max_items=2 ** (largest.bit_length() - 1),
        why=f"so that {what} takes at least {fewest:,} optimizer steps"
        if largest > harmless
        else f"which does {kind} no harm, however short",
    )


def _fact(kind: Kind, fact: str) -> int:
    return int(_figure(kind, fact))


@cache
def _figure(kind: Kind, fact: str) -> float:
    """A figure of ``data/batch_limits.csv``."""
    rows = shipped_rows("planning", "batch_limits.csv")
    return next(float(row["value"]) for row in rows if (row["kind"], row["fact"]) == (kind, fact))
