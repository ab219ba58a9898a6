"""Training whose devices share the model: the strategy that a row states, costed as users' are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from paceline.app.scoring.assumed import note_of, widening
from paceline.app.scoring.groups import Cell, Group, JobStep
from paceline.app.scoring.models import UnresolvedRowError
from paceline.app.scoring.networks import links_of_row, switched_link
from paceline.app.scoring.rows import Row
from paceline.app.scoring.stated_degrees import (
    Degrees,
    sharding_of,
    shared_degrees,
    stated_degrees,
)
from paceline.app.scoring.tables import read_table
from paceline.parallel import Cluster, Strategy
from paceline.parallel.search import FoundStrategy
from paceline.parallel.stated import evaluate_stated

_RELEASE = re.compile(r"\b\d\d\.\d\d(?:\.\d+)?\b")
_YES = "yes"


def degrees_of(row: Row) -> Degrees:
    """How devices share the model, from stated degrees or from the batch they share.

    Raises:
        UnresolvedRowError: Several devices share an item, and nothing says how.
    """
    degrees = stated_degrees(row.parallelism)
    num_devices, accumulation = int(row.num_gpus or 1), row.grad_accumulation or 1.0
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


def split_step(cell: Cell, group: Group, degrees: Degrees) -> JobStep:
    """One step of a strategy, whether its ranks' memory holds it or not: what ran did fit.

    Raises:
        UnresolvedRowError: Its degrees and batches do not go together.
        PacelineError: The model cannot be split so, or a fact is missing.
    """
    recipe = recipe_of(cell.row, cell.device.name)
    has_adapters = cell.job.configuration.lora_rank > 0
    items = items_of(cell.row, degrees)
    strategy = strategy_of(cell.row, degrees, recipe, has_adapters=has_adapters)
    cluster, is_assumed = _cluster(cell, group, recipe)
    found = evaluate_stated(
        group.workload.passes[0].graph,
        group.lowered.configuration,
        cluster,
        strategy,
        seq=cell.job.seq or group.workload.default_seq,
        global_batch=int(items),
        recipe="half-weights" if recipe["weights"] else None,
        calibration=group.calibration,
    )
    hides = recipe["hides_tensor_sums"] == _YES
    return JobStep(
        step_s=found.step_s - (_hidden_s(found) if hides else 0.0),
        items=items,
        memory_bytes=found.memory_bytes,
        log_sigma=math.hypot(widening(["strategy"]), widening(["network"]) * is_assumed),
        note=note_of(["network"]) if is_assumed else "",
    )


def _hidden_s(found: FoundStrategy) -> float:
    """What tensor ranks exchange behind products, chunk by chunk: all but the first.

    Transformer Engine's ``userbuffers`` (Megatron's ``tp_comm_overlap``) do it; recipes of models
    with experts leave it off.
    """
    degree = found.strategy.size("tp") if found.strategy.size("ep") == 1 else 1
    return found.tensor_s * (1.0 - 1.0 / degree)


def items_of(row: Row, degrees: Degrees) -> float:
    """Items of a step, as stated or as replicas make them.

    Raises:
        UnresolvedRowError: The row states no batch.
    """
    if row.global_batch:
        return row.global_batch
    if not row.batch_per_gpu:
        raise UnresolvedRowError("the row states no batch size")
    replicas = int(row.num_gpus or 1) // (degrees.tp * degrees.pp * degrees.cp)
    return row.batch_per_gpu * (row.grad_accumulation or 1.0) * max(replicas, 1)


def strategy_of(
    row: Row, degrees: Degrees, recipe: Mapping[str, str], *, has_adapters: bool
) -> Strategy:
    """What a row states, in the tool's notation.

    Tensor ranks are expert ranks too (Megatron's ``expert_tensor_parallel_size=1``); the tool
    counts expert ranks beside tensor ranks. Adapters are too small to shard.

    Raises:
        UnresolvedRowError: Degrees, devices and batches do not go together.
    """
    tp, pp, cp = degrees.tp, degrees.pp, degrees.cp
    ep, left = divmod(degrees.ep, tp) if degrees.ep > 1 else (1, 0)
    dp, unused = divmod(int(row.num_gpus or 1), tp * pp * cp * max(ep, 1))
    if left or unused or not dp or degrees.dp not in (None, dp, dp * ep):
        raise UnresolvedRowError(
            f"the degrees of `{row.parallelism}` do not make its {row.num_gpus:.0f} ranks"
        )
    count = _microbatches(row, items_of(row, degrees) / (dp * max(ep, 1)))
    axes = (("pp", pp), ("dp", dp), ("ep", ep), ("cp", cp), ("tp", tp))
    mesh = ".".join(f"{name}{size}" for name, size in axes if size > 1)
    how = "" if pp == 1 else f"@interleaved{degrees.chunks}" if degrees.chunks > 1 else "@1f1b"
    is_alone = dp * cp * ep == 1 or has_adapters
    sharding = "" if is_alone else _sharding(row, degrees, recipe)
    cuts = "+sp" if tp > 1 and recipe["sequence_parallel"] == _YES else ""
    return Strategy.parse(f"{mesh}{how}/mb{count}{sharding}{cuts}")


def _microbatches(row: Row, items: float) -> int:
    """Microbatches of one replica, whose items are those of its step."""
    count = items / row.batch_per_gpu if row.batch_per_gpu else row.grad_accumulation or items
    if count < 1 or count % 1 or (items / count) % 1:
        raise UnresolvedRowError("its global batch is no whole number of microbatches")
    return int(count)


def _sharding(row: Row, degrees: Degrees, recipe: Mapping[str, str]) -> str:
    """As stated, else as the recipes of a framework have it."""
    stated = "zero3" if degrees.is_fully_sharded else sharding_of(row.parallelism)
    sharding = stated if stated != "none" else recipe["sharding"]
    return f"+{sharding}" if sharding else ""


def _cluster(cell: Cell, group: Group, recipe: Mapping[str, str]) -> tuple[Cluster, bool]:
    """On devices without end of memory; and whether the network between nodes is assumed."""
    joined = links_of_row(group.catalog, cell.device, cell.row)
    cluster = Cluster(
        device=cell.device.with_memory(math.inf),
        devices_per_node=joined.devices_per_node,
        device_link=switched_link(group.catalog, cell.device) or joined.links.device,
        node_link=joined.links.node,
        sends_tokens_once=recipe["sends_once"] == _YES,
        hides_exchange=recipe["hides_exchange"] == _YES,
        keeps_experts_whole=True,
        gathers_ahead=bool(recipe["weights"]),
    )
    return cluster, joined.is_assumed


def recipe_of(row: Row, device: str) -> dict[str, str]:
    """The first line of ``data/training_recipes.csv`` that fits; the last fits every row.

    Args:
        row: The row.
        device: ``Device.name`` that it means.
    """
    release = _RELEASE.search(row.framework)
    stated = {
        "framework": row.framework,
        "model": row.model,
        "device": device,
        "precision": row.precision,
        "parallelism": row.parallelism,
        "release": release[0] if release else "",
    }
    return next(
        line
        for line in read_table("training_recipes.csv")
        if all(re.search(line[name], text, re.IGNORECASE) for name, text in stated.items())
    )
