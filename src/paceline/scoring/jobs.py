"""A row as a job on a machine: what `simulate` is asked of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from paceline.catalog.entities import Catalog, Device
from paceline.model.graph.rows import with_rows
from paceline.model.graph.workload import Workload
from paceline.model.items import StatedItem, as_items, denoises
from paceline.model.table_updates import updates_rows
from paceline.parallelism.split import SplitShape
from paceline.parallelism.strategy.strategy import Strategy
from paceline.scoring.assumed import Assumed, widening
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.networks import links_of_row, switched_link
from paceline.scoring.naming.recipes import (
    degrees_of,
    habits_of,
    items_of,
    recipe_of,
    strategy_of,
)
from paceline.scoring.naming.serving import Requests, profile_of
from paceline.scoring.naming.stated_degrees import are_independent, sharding_of, stated_degrees
from paceline.scoring.readings import ENGINES, Reading, leaving_open
from paceline.scoring.rows import Row
from paceline.simulation.job import OF_REPLICAS, Habit, Job
from paceline.simulation.machine import Machine
from paceline.stack.engines import USUAL_LOOP
from paceline.stack.recipes import TrainingRecipe
from paceline.values import dataclass

_BEAMS = re.compile(r"\bbeams?(?:[ _-]?size)?\s*[=: ]\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A row with what it says and the device that it means.

    Attributes:
        index: Position of the row in its table.
        reading: What it says of the job.
        capacities_bytes: Least and most memory of the devices that the row may mean; None where
            one is unknown.
    """

    index: int
    row: Row
    reading: Reading
    device: Device
    capacities_bytes: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """What a row asks of `simulate`.

    Attributes:
        job: What runs.
        items: Batch items of a step of all devices.
        assumed: What the row does not say of its devices.
        log_sigma: What is not known of the split widens the interval by that much.
        note: What was made of its words, where that is worth telling.
    """

    job: Job
    machine: Machine
    items: float
    assumed: tuple[Assumed, ...] = ()
    log_sigma: float = 0.0
    note: str = ""


def with_items(cells: Sequence[Cell], workload: Workload) -> list[tuple[Cell, Workload]]:
    """Rows with the workload whose items they count, where these are more than a pass.

    A picture is all that its pipeline runs; pieces of what a graph is a cut of are read together;
    an answer that is searched is written by all beams at once.

    Args:
        cells: Rows of one model.
        workload: A pass of it, as it was traced.
    """
    items: dict[float, Workload] = {}
    searched: dict[int, Workload] = {}
    found = []
    for cell in cells:
        passes, beams = cell.reading.num_passes, _beams(cell)
        if beams > 1 and cell.row.scenario and workload.generates:
            if beams not in searched:
                searched[beams] = as_items(workload, StatedItem(beams=beams))
            found.append((cell, searched[beams]))
            continue
        is_item = denoises(workload) or (cell.reading.is_cut and workload.task == "infer")
        if passes == 1.0 or not is_item:
            found.append((cell, workload))
            continue
        if passes not in items:
            items[passes] = _item(workload, passes)
        whole = replace(cell, reading=replace(cell.reading, num_passes=1.0))
        found.append((whole, items[passes]))
    return found


def with_requests(cell: Cell, workload: Workload) -> Cell:
    """The row with requests of usual length, where an engine answers and it states none.

    How many prompts an engine reads between two tokens depends on them.
    """
    reading = cell.reading
    serves = reading.task == "infer" and reading.framework == ENGINES and not workload.encodes
    if not (serves and workload.generates) or reading.requests is not None:
        return cell
    usual = Requests(
        input_tokens=round(cell.row.seq or workload.usual_prompt_tokens),
        output_tokens=workload.usual_output_tokens,
    )
    reading = leaving_open(reading, "requests")
    return replace(cell, reading=replace(reading, requests=usual, seq=usual.mean_context))


def _beams(cell: Cell) -> int:
    """Answers that a search keeps beside each other; 0 where the row states none."""
    stated = _BEAMS.search(cell.row.flags)
    return 0 if stated is None else int(stated[1])


def _item(workload: Workload, passes: float) -> Workload:
    if denoises(workload):
        return as_items(workload, StatedItem(denoising_steps=round(passes)))
    pieces = (replace(one, graph=with_rows(one.graph, passes)) for one in workload.passes)
    return replace(workload, passes=tuple(pieces))


def row_job(cell: Cell, workload: Workload, catalog: Catalog) -> RowJob:
    """The job and the machine of a row.

    Raises:
        UnresolvedRowError: How its devices share the work, or what joins them, is not known.
        PacelineError: A strategy that is none.
    """
    row = cell.row
    if row.strategy:
        return _stated(cell, workload, catalog)
    if cell.reading.task == "infer" and (cell.reading.requests or cell.reading.split.num_ranks > 1):
        return _served(cell, workload, catalog)
    if row.num_devices <= 1 and stated_degrees(row.parallelism).splits_model:
        raise UnresolvedRowError("its devices share the model, and it states one or no number")
    if row.num_devices <= 1 or are_independent(row.parallelism):
        note = "its devices exchange no gradients" if row.num_devices > 1 else ""
        return replace(_replicas(cell, workload, catalog, 1), items=_items(cell), note=note)
    if cell.reading.task == "infer":
        return _replicas(cell, workload, catalog, row.num_devices)
    degrees, recipe = degrees_of(row), recipe_of(row, cell.device.name)
    how = cell.reading.configuration.table_updates
    if not degrees.splits_model and updates_rows(workload.passes[0].graph, how):
        shared = Strategy.parse(f"ep{row.num_devices}")
        return _split(cell, workload, catalog, shared, recipe, _items(cell))
    if degrees.splits_model or recipe.is_megatron:
        has_adapters = cell.reading.configuration.lora_rank > 0
        strategy = strategy_of(row, degrees, recipe, has_adapters=has_adapters)
        return _split(cell, workload, catalog, strategy, recipe, items_of(row, degrees))
    habits = tuple(habit for habit in habits_of(recipe) if habit in OF_REPLICAS)
    return _replicas(cell, workload, catalog, row.num_devices, habits)


def _items(cell: Cell) -> float:
    reading = cell.reading
    return reading.batch_per_gpu * reading.grad_accumulation * cell.row.num_devices


def _stated(cell: Cell, workload: Workload, catalog: Catalog) -> RowJob:
    """The strategy that a row states exactly."""
    strategy = Strategy.parse(cell.row.strategy)
    if strategy.num_ranks != cell.row.num_devices and cell.row.num_gpus is not None:
        raise UnresolvedRowError(
            f"`{strategy}` has {strategy.num_ranks} ranks, and the row {cell.row.num_devices}"
        )
    row = replace(cell.row, num_gpus=float(strategy.num_ranks))
    items = row.global_batch or (row.batch_per_gpu or math.nan) * strategy.num_parts
    if math.isnan(items):
        raise UnresolvedRowError("the row states no batch size")
    recipe = recipe_of(row, cell.device.name)
    habits = recipe.habits - {"gathers-ahead", "frees-messages"}
    recipe = replace(recipe, is_megatron=False, habits=habits)
    return _split(replace(cell, row=row), workload, catalog, strategy, recipe, items)


def _served(cell: Cell, workload: Workload, catalog: Catalog) -> RowJob:
    """Ranks that share a model in inference, and replicas of those that do not talk."""
    reading, split = cell.reading, cell.reading.split
    num_devices = cell.row.num_devices
    sequence = split.ring * split.ulysses
    degrees = (
        ("dp", num_devices // split.num_ranks), ("cfg", split.guidance), ("cp", sequence),
        ("tp", split.tensor),
    )  # fmt: skip
    mesh = ".".join(f"{name}{size}" for name, size in degrees if size > 1) or "dp1"
    heads = f"+ulysses{split.ulysses}" if split.ulysses > 1 else ""
    machine, is_assumed = _machine(cell, catalog, num_devices)
    if 1 < split.num_ranks > machine.devices_per_domain:
        raise UnresolvedRowError(
            f"{split.num_ranks} ranks share the model, and a node has "
            f"{machine.devices_per_domain} devices"
        )
    habits: tuple[Habit, ...] = ("whole",) if split.whole_experts else ()
    job = _job(cell, workload, Strategy.parse(f"{mesh}{heads}"), reading.batch_per_gpu, habits)
    if reading.requests is not None and job.is_generation:
        job = replace(
            job,
            prompt_tokens=reading.requests.input_tokens,
            output_tokens=reading.requests.output_tokens,
        )
        if reading.framework == ENGINES:
            job = replace(job, profile=profile_of(cell.row.framework))
    doublings = math.log2(sequence * split.guidance)
    return RowJob(
        job=job,
        machine=machine,
        items=reading.batch_per_gpu * reading.grad_accumulation * num_devices / split.num_sharing,
        assumed=("network",) if is_assumed else (),
        log_sigma=widening(["tokens"]) * doublings,
    )


def _replicas(
    cell: Cell, workload: Workload, catalog: Catalog, num_devices: int,
    habits: tuple[Habit, ...] = (),
) -> RowJob:  # fmt: skip
    """Every device takes items of its own."""
    reading = cell.reading
    count = reading.grad_accumulation
    if not float(count).is_integer():
        raise UnresolvedRowError(f"{count:g} microbatches are no whole number")
    sharding = sharding_of(cell.row.parallelism) if reading.task == "train" else "none"
    shards = f"+{sharding}" if sharding != "none" and num_devices > 1 else ""
    strategy = Strategy.parse(f"dp{num_devices}/mb{int(count)}{shards}")
    machine, is_assumed = _machine(cell, catalog, num_devices)
    return RowJob(
        job=_job(cell, workload, strategy, reading.batch_per_gpu, habits),
        machine=machine,
        items=_items(cell),
        assumed=("network",) if is_assumed else (),
    )


def _split(
    cell: Cell, workload: Workload, catalog: Catalog, strategy: Strategy, recipe: TrainingRecipe,
    items: float,
) -> RowJob:  # fmt: skip
    """Ranks share the model; what ran did fit, whether it is predicted to or not."""
    machine, is_assumed = _machine(cell, catalog, strategy.num_ranks)
    link = switched_link(catalog, cell.device)
    if strategy.num_ranks > 1 and link is not None:
        machine = replace(machine, device_link=link)
    job = _job(cell, workload, strategy, items / strategy.num_parts, habits_of(recipe))
    if recipe.is_megatron:
        how = replace(job.configuration, training_format="half-weights")
        job = replace(job, configuration=how)
    assumed: tuple[Assumed, ...] = ("strategy", "network") if is_assumed else ("strategy",)
    return RowJob(job=job, machine=machine, items=items, assumed=assumed)


def _job(
    cell: Cell, workload: Workload, strategy: Strategy, batch: float, habits: tuple[Habit, ...] = ()
) -> Job:
    """Of a generation, the token after so many: what tables time."""
    reading = cell.reading
    seq = padded_length(reading.seq or workload.default_seq, strategy)
    generates = any(one.name == "decode" for one in workload.passes)
    if workload.encodes:
        return _answered(cell, workload, strategy, batch)
    return Job(
        workload=workload,
        configuration=reading.configuration,
        strategy=strategy,
        batch=batch,
        seq=seq,
        prompt_tokens=seq if generates else None,
        output_tokens=1 if generates else None,
        profile=reading.framework,
        habits=habits,
    )


def padded_length(seq: int, strategy: Strategy) -> int:
    """Sequence length with the padding that ranks which cut sequences need.

    >>> padded_length(8055, Strategy.parse("cp2")), padded_length(8055, Strategy.parse("dp2"))
    (8056, 8055)
    """
    pieces = SplitShape.of(strategy).num_pieces
    return -(-seq // pieces) * pieces


def _answered(cell: Cell, workload: Workload, strategy: Strategy, batch: float) -> Job:
    """Whole answers of an encoder-decoder, of usual lengths, with the beams that a row states."""
    item = as_items(workload, StatedItem(beams=_beams(cell) or None), typed=cell.row.model)
    framework = cell.reading.framework
    return Job(
        workload=item,
        configuration=replace(cell.reading.configuration, is_served=False),
        strategy=strategy,
        batch=batch,
        prompt_tokens=item.usual_prompt_tokens,
        output_tokens=item.usual_output_tokens,
        profile=USUAL_LOOP if framework == ENGINES else framework,
    )


def _machine(cell: Cell, catalog: Catalog, count: int) -> tuple[Machine, bool]:
    """Devices joined as the row says; and whether the network between nodes is assumed."""
    if count == 1:
        return Machine.of(cell.device), False
    joined = links_of_row(catalog, cell.device, cell.row)
    machine = Machine.of(
        cell.device, count, devices_per_node=joined.devices_per_node,
        device_link=joined.links.device, node_link=joined.links.node,
    )  # fmt: skip
    return machine, joined.is_assumed
