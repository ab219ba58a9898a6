"""How the weights of a training step are kept, and 16-bit ones with FP32 masters as a rewrite.

Sources:
    PyTorch documentation, "Automatic Mixed Precision package" (FP32 weights, narrow copies);
    Rajbhandari et al., "ZeRO", SC 2020, section 3.1, Megatron-LM, DeepSpeed's BF16 optimizer and
    FSDP2's ``MixedPrecisionPolicy`` (forward and backward on 16-bit weights, FP32 ones with the
    optimizer). Published recipes of models from about 5 billion parameters on (Llama, MPT,
    Megatron-Bridge, TorchTitan) are of the latter kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.model.graph.costs import Configuration, KeptFormat
from paceline.model.graph.graph import Graph, OpKind, Owner
from paceline.model.graph.program import (
    OUTLIVES,
    Accesses,
    BoolArray,
    Program,
)
from paceline.model.rewrite.autocast import narrowed
from paceline.model.rewrite.draft import Draft
from paceline.model.rewrite.freezing import updates_of
from paceline.model.table_updates import is_mostly_tables

_FP32_BYTES = float(ELEMENT_BYTES[DType.FP32])
#: Models from so many parameters on are trained on 16-bit weights where nobody says otherwise.
LARGE_MODEL_PARAMETERS = 5_000_000_000


def kept_format(graph: Graph, configuration: Configuration) -> KeptFormat:
    """How the weights of a training step in 16 bits are kept: as stated, or as is usual.

    One rule for one device and for every strategy: models below `LARGE_MODEL_PARAMETERS` under
    autocast, which is what ``torch.autocast`` in a script means; larger ones on 16-bit weights
    with FP32 masters, as their published recipes have it. Below adapters the weights stay in the
    16 bits that they were released in, whatever the size, and the adapters are wide. Tables that
    are most of a recommender multiply nothing and stay wide under autocast.

    Source (adapters):
        huggingface/transformers 5, ``from_pretrained`` (``dtype`` is ``auto``); huggingface/peft,
        ``autocast_adapter_dtype``; huggingface/diffusers, ``train_text_to_image_lora.py``
        (frozen networks cast to the precision of training). Read 2026-11-23.
    """
    if configuration.training_format != "usual":
        return configuration.training_format
    if configuration.lora_rank:
        return "half-weights"
    storages = graph.storages
    parameters = storages.elements[storages.owner == Owner.PARAMETER, 0].sum()
    is_large = parameters >= LARGE_MODEL_PARAMETERS and not is_mostly_tables(graph)
    return "half-weights" if is_large else "autocast"


def with_weight_format(graph: Graph, configuration: Configuration) -> Configuration:
    """The configuration with the usual format said, so that parts of a model are kept as it is."""
    return replace(configuration, training_format=kept_format(graph, configuration))


def sent_gradient_frac(program: Program, configuration: Configuration) -> float:
    """Bytes of gradients as ranks reduce them over those that are kept.

    Beside master weights gradients are kept in FP32, and sent so in BF16 training, in FP16
    training as they were made (Megatron-LM, ``accumulate_allreduce_grads_in_fp32``).
    """
    stores = program.stores
    has_masters = bool((stores.owner == Owner.MASTER_WEIGHT).any())
    has_wide = bool((stores.element_bytes[stores.owner == Owner.GRADIENT] >= _FP32_BYTES).any())
    return 0.5 if has_masters and has_wide and configuration.precision == "fp16" else 1.0


def with_master_weights(
    program: Program, *, element_bytes: float, has_wide_gradients: bool = True,
    joins_gradients: bool = False,
) -> Program:  # fmt: skip
    """``program`` on narrow weights, with FP32 gradients, optimizer state and master weights.

    An update reads and writes the masters, and writes the narrow weights too. Parameters that are
    not trained have no masters.

    Args:
        program: Of a training step.
        element_bytes: Of weights and activations.
        has_wide_gradients: Whether gradients are kept in FP32 as they are made, rather than narrow
            until the update, which widens all of its own before it begins.
        joins_gradients: Whether narrow ones are joined in one tensor first, which is widened.

    Source (narrow gradients):
        deepspeedai/DeepSpeed 0.18.2, runtime/zero/stage_1_and_2.py, `step`, and stage3.py,
        `_prepare_fp32_grad_for_sub_group`: ``self.flatten(self.averaged_gradients[...]).to(...)``,
        before gradients are freed (read 2026-11-28).
    """
    narrow = narrowed(program, element_bytes=element_bytes)
    narrow = _with_wide_states(program, narrow, of_gradients=has_wide_gradients)
    if not has_wide_gradients:
        narrow = _with_gradients_widened(narrow, element_bytes if joins_gradients else 0.0)
    is_updated, copy = _updated_parameters(narrow)
    if not is_updated.any():
        return narrow
    updated = np.flatnonzero(is_updated)
    masters = replace(
        take_rows(narrow.stores, updated),
        element_bytes=np.full(len(updated), _FP32_BYTES),
        owner=np.full(len(updated), int(Owner.MASTER_WEIGHT)),
        is_wide=np.ones(len(updated), dtype=np.bool_),
        birth=np.full(len(updated), -1),
        death=np.full(len(updated), OUTLIVES),
    )
    place = np.full(len(narrow.stores), -1)
    place[updated] = len(narrow.stores) + np.arange(len(updated))
    return replace(
        narrow,
        reads=_redirected(narrow, narrow.reads, place),
        writes=join_tables(_redirected(narrow, narrow.writes, place), copy),
        stores=join_tables(narrow.stores, masters),
    )


def _with_gradients_widened(program: Program, joined_bytes: float) -> Program:
    """An FP32 copy of each gradient while the update that reads it runs.

    Args:
        program: With narrow gradients.
        joined_bytes: Of each element, what the tensor has that gradients are joined in before.
    """
    draft = Draft(program)
    copies, ops = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for op in np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER).tolist():
        gradient = updates_of(program, op).gradient
        size = program.stores.elements[gradient]
        copies.append(draft.workspaces(size, element_bytes=_FP32_BYTES + joined_bytes))
        ops.append(np.full(len(gradient), op))
    joined, copy = draft.joined(), np.concatenate(copies)
    birth, death = joined.stores.birth.copy(), joined.stores.death.copy()
    birth[copy] = death[copy] = np.concatenate(ops)
    return replace(joined, stores=replace(joined.stores, birth=birth, death=death))


def _with_wide_states(before: Program, program: Program, *, of_gradients: bool) -> Program:
    """Optimizer state and what an update works on as they were before; gradients in FP32 if so."""
    stores = program.stores
    birth = np.clip(stores.birth, 0, len(program.ops) - 1)
    is_of_update = (stores.birth >= 0) & (program.ops.kind[birth] == OpKind.OPTIMIZER)
    is_as_before = (stores.owner == Owner.OPTIMIZER_STATE) | is_of_update
    width = np.where(is_as_before, before.stores.element_bytes, stores.element_bytes)
    if of_gradients:
        width = np.where(stores.owner == Owner.GRADIENT, np.maximum(width, _FP32_BYTES), width)
    return replace(program, stores=replace(stores, element_bytes=width))


def _updated_parameters(program: Program) -> tuple[BoolArray, Accesses]:
    """Parameters that optimizers write, (num_storages,), and those writes."""
    writes = program.writes
    rows = program.ops.kind[writes.op] == OpKind.OPTIMIZER
    rows &= program.stores.owner[writes.storage] == Owner.PARAMETER
    is_updated = np.zeros(len(program.stores), dtype=np.bool_)
    is_updated[writes.storage[rows]] = True
    return is_updated, writes.kept(rows)


def _redirected(program: Program, accesses: Accesses, place: np.ndarray) -> Accesses:
    """What optimizers touch of parameters, at their masters instead."""
    moves = (program.ops.kind[accesses.op] == OpKind.OPTIMIZER) & (place[accesses.storage] >= 0)
    return replace(accesses, storage=np.where(moves, place[accesses.storage], accesses.storage))
