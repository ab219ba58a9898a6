"""Training whose devices share the model: the strategy that a row states, costed as users' are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from paceline.parallel import Cluster, Strategy
from paceline.parallel.search import FoundStrategy
from paceline.parallel.stated import evaluate_stated, stated_traits
from paceline.parallel.traced_job import TracedJob
from paceline.parallel.training_profile import find_training_profile
from paceline.scoring.assumed import note_of, widening
from paceline.scoring.groups import Cell, Group, JobStep
from paceline.scoring.models import UnresolvedRowError
from paceline.scoring.networks import links_of_row, switched_link
from paceline.scoring.rows import Row
from paceline.scoring.stated_degrees import (
    Degrees,
    sharding_of,
    shared_degrees,
    stated_degrees,
)
from paceline.scoring.tables import fitting_lines
from paceline.trace.costs import Configuration

_RELEASE = re.compile(r"\b\d\d\.\d\d(?:\.\d+)?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """What a framework's recipe of training does beside the degrees that a row states.

    Attributes:
        is_megatron: Weights in 16 bits beside the optimizer's own, sequences cut where layers are
            not, gathers behind the next forward pass.
        sends_once: Tokens go once to each node and rank.
        hides_exchange: Tokens travel while another microbatch is computed.
        hides_tensor_sums: What tensor ranks exchange travels behind products, chunk by chunk.
        sharding: What replicas shard where the row does not say; empty for nothing.
    """

    is_megatron: bool = False
    sends_once: bool = False
    hides_exchange: bool = False
    hides_tensor_sums: bool = False
    sharding: str = ""


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
    job = TracedJob(
        graph=group.workload.passes[0].graph,
        configuration=_kept_as(recipe, group.lowered.configuration),
        cluster=cluster,
        seq=cell.job.seq or group.workload.default_seq,
        by_blocks=recipe.is_megatron,
        calibration=group.calibration,
    )
    found = evaluate_stated(job, strategy, global_batch=int(items))
    traits = None
    if group.is_learned_from:
        (traits,) = stated_traits(job, strategy, [found.microbatch])
    return JobStep(
        step_s=found.step_s - (_hidden_s(found) if recipe.hides_tensor_sums else 0.0),
        items=items,
        memory_bytes=found.memory_bytes,
        log_sigma=math.hypot(widening(["strategy"]), widening(["network"]) * is_assumed),
        note=note_of(["network"]) if is_assumed else "",
        traits=traits,
    )


def _kept_as(recipe: TrainingRecipe, configuration: Configuration) -> Configuration:
    """As the framework keeps weights: Megatron-LM always in 16 bits with FP32 masters."""
    if not recipe.is_megatron:
        return configuration
    return replace(configuration, training_format="half-weights")


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
    cuts = "+sp" if tp > 1 and recipe.is_megatron else ""
    return Strategy.parse(f"{mesh}{how}/mb{count}{sharding}{cuts}")


def _microbatches(row: Row, items: float) -> int:
    """Microbatches of one replica, whose items are those of its step."""
    count = items / row.batch_per_gpu if row.batch_per_gpu else row.grad_accumulation or items
    if count < 1 or count % 1 or (items / count) % 1:
        raise UnresolvedRowError("its global batch is no whole number of microbatches")
    return int(count)


def _sharding(row: Row, degrees: Degrees, recipe: TrainingRecipe) -> str:
    """As stated, else as the recipes of a framework have it."""
    stated = "zero3" if degrees.is_fully_sharded else sharding_of(row.parallelism)
    sharding = stated if stated != "none" else recipe.sharding
    return f"+{sharding}" if sharding else ""


def _cluster(cell: Cell, group: Group, recipe: TrainingRecipe) -> tuple[Cluster, bool]:
    """On devices without end of memory; and whether the network between nodes is assumed."""
    joined = links_of_row(group.catalog, cell.device, cell.row)
    profile = replace(
        find_training_profile(), tokens_once=recipe.sends_once, whole_experts=True,
        hides_exchange=recipe.hides_exchange,
    )  # fmt: skip
    if recipe.is_megatron:
        profile = profile.with_optimizer_of(find_training_profile("megatron"))
    cluster = Cluster(
        device=cell.device.with_memory(math.inf),
        devices_per_node=joined.devices_per_node,
        device_link=switched_link(group.catalog, cell.device) or joined.links.device,
        node_link=joined.links.node,
        profile=profile,
    )
    return cluster, joined.is_assumed


def recipe_of(row: Row, device: str) -> TrainingRecipe:
    """What the first line of ``data/training_recipes.csv`` that fits says; the last fits every row.

    Args:
        row: The row.
        device: ``Device.name`` that it means.
    """
    release = _RELEASE.search(row.framework)
    asked = {
        "framework": row.framework,
        "model": row.model,
        "device": device,
        "precision": row.precision,
        "parallelism": row.parallelism,
        "release": release[0] if release else "",
    }
    line = next(fitting_lines("training_recipes.csv", asked))
    flags = ("is_megatron", "sends_once", "hides_exchange", "hides_tensor_sums")
    return TrainingRecipe(
        **{name: line[name] == "yes" for name in flags}, sharding=line["sharding"]
    )
