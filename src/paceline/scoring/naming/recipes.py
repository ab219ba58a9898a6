"""Training on several devices: the strategy that a row states, and its framework's habits."""

from __future__ import annotations

import re

from paceline.parallelism.strategy.strategy import Strategy
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.stated_degrees import (
    Degrees,
    sharding_of,
    shared_degrees,
    stated_degrees,
)
from paceline.scoring.rows import Row
from paceline.simulation.job import HABITS, Habit
from paceline.stack.recipes import TrainingRecipe, training_recipe

_CUT = re.compile(r"sequence[ _-]parallel|\bSP\b(?! ?[=:]? ?0)")


def degrees_of(row: Row) -> Degrees:
    """How devices share the model, from stated degrees or from the batch they share.

    Raises:
        UnresolvedRowError: Several devices share an item, and nothing says how.
    """
    degrees = stated_degrees(row.parallelism)
    num_devices, accumulation = row.num_devices, row.grad_accumulation or 1.0
    if not degrees.splits_model and (degrees.dp or 1) not in (1, num_devices):
        raise UnresolvedRowError(f"`{row.parallelism}` replicas are not its {num_devices} devices")
    replicas = (row.global_batch or num_devices * accumulation) / accumulation
    if degrees.splits_model or replicas >= num_devices:
        return degrees
    num_sharing, left = divmod(num_devices, replicas)
    shared = shared_degrees(row.parallelism, int(num_sharing))
    if shared is None or left:
        raise UnresolvedRowError("several devices share an item, and the row does not say how")
    return shared


def items_of(row: Row, degrees: Degrees) -> float:
    """Items of a step, as stated or as replicas make them.

    Raises:
        UnresolvedRowError: The row states no batch.
    """
    if row.global_batch:
        return row.global_batch
    if not row.batch_per_gpu:
        raise UnresolvedRowError("the row states no batch size")
    replicas = row.num_devices // (degrees.tp * degrees.pp * degrees.cp)
    return row.batch_per_gpu * (row.grad_accumulation or 1.0) * max(replicas, 1)


def strategy_of(
    row: Row, degrees: Degrees, recipe: TrainingRecipe, *, has_adapters: bool
) -> Strategy:
    """What a row states, in the tool's notation.

    Tensor ranks are expert ranks too (Megatron's ``expert_tensor_parallel_size=1``); the tool
    counts expert ranks beside tensor ranks. Adapters are too small to shard.

    Raises:
        UnresolvedRowError: Degrees, devices and batches do not go together.
    """
    tp, pp, cp = degrees.tp, degrees.pp, degrees.cp
    ep, left = divmod(degrees.ep, tp) if degrees.ep > 1 else (1, 0)
    dp, unused = divmod(row.num_devices, tp * pp * cp * max(ep, 1))
    if left or unused or not dp or degrees.dp not in (None, dp, dp * ep):
        raise UnresolvedRowError(
            f"the degrees of `{row.parallelism}` do not make its {row.num_devices} ranks"
        )
    count = _microbatches(row, items_of(row, degrees) / (dp * max(ep, 1)))
    axes = (("pp", pp), ("dp", dp), ("ep", ep), ("cp", cp), ("tp", tp))
    mesh = ".".join(f"{name}{size}" for name, size in axes if size > 1)
    how = "" if pp == 1 else f"@interleaved{degrees.chunks}" if degrees.chunks > 1 else "@1f1b"
    is_alone = dp * cp * ep == 1 or has_adapters
    sharding = "" if is_alone else _sharding(row, degrees, recipe)
    cuts = "+sp" if tp > 1 and (recipe.cuts_sequence or _CUT.search(row.parallelism)) else ""
    again = f"+recompute-{recipe.recomputes}" if recipe.recomputes else ""
    return Strategy.parse(f"{mesh}{how}/mb{count}{sharding}{cuts}{again}")


def _microbatches(row: Row, items: float) -> int:
    """Microbatches of one replica, whose items are those of its step."""
    count = items / row.batch_per_gpu if row.batch_per_gpu else row.grad_accumulation or items
    if count < 1 or count % 1 or (items / count) % 1:
        raise UnresolvedRowError("its global batch is no whole number of microbatches")
    return int(count)


def _sharding(row: Row, degrees: Degrees, recipe: TrainingRecipe) -> str:
    """As stated, else as the recipes of a framework have it."""
    said = f"{row.parallelism}, {row.flags}" if recipe.is_megatron else row.parallelism
    stated = "zero3" if degrees.is_fully_sharded else sharding_of(said)
    sharding = stated if stated != "none" else recipe.sharding
    return f"+{sharding}" if sharding else ""


def recipe_of(row: Row, device: str) -> TrainingRecipe:
    """What the software of a row does beside the degrees that it states.

    ``device``: ``Device.name`` that it means.
    """
    return training_recipe(
        row.framework,
        model=row.model,
        device=device,
        precision=row.precision,
        parallelism=row.parallelism,
    )


def habits_of(recipe: TrainingRecipe) -> tuple[Habit, ...]:
    """The same in the words of a job; Megatron's tensor ranks never cut experts."""
    said = {"whole", *recipe.habits}
    return tuple(habit for habit in HABITS if habit in said)
