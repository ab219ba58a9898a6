"""Which tensors stay FP32 when a pass runs under autocast."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paceline.dtypes import DType
from paceline.model.graph.graph import Owner, Phase
from paceline.model.graph.raw import RawPass
from paceline.model.ops.optable import OpRule
from paceline.model.ops.registry import kinds_where

#: Kinds whose FP32 rule is autocast's own, so that it does not hold in the backward pass, where
#: autograd runs them in the format of what they are given.
_FORWARD_RULE = kinds_where(lambda facts: facts.wide_forward_only)


def wide_storages(raw: RawPass, rules: list[OpRule]) -> npt.NDArray[np.bool_]:
    """Storages that stay FP32 under autocast, (num_storages,).

    Parameters, buffers, inputs and gradients are FP32. What an op writes follows its class:
    matrix products write the narrow format; norms, losses and exponentials FP32; pointwise ops
    the widest of their inputs; the rest what their first input is.

    Source:
        PyTorch documentation, "Automatic Mixed Precision package", CUDA op reference.
    """
    is_wide = (raw.birth < 0) | (raw.owner == Owner.GRADIENT)
    is_floating = np.isin(raw.storage_dtype, (DType.FP32, DType.FP64))
    is_scalar = raw.storage_elements[:, 0] == raw.storage_elements.sum(axis=1)
    is_scalar &= raw.storage_elements[:, 0] <= 1
    flags = is_wide.tolist()
    counted = (is_floating & ~is_scalar).tolist()
    fixed = (is_wide | ~is_floating).tolist()
    reads, writes = _storage_lists(raw, "inputs"), _storage_lists(raw, "outputs")
    classes = [(r.autocast, r.kind) for r in rules]
    names, phases = raw.op_name.tolist(), raw.phase.tolist()
    birth = raw.birth.tolist()
    for op, (name, phase) in enumerate(zip(names, phases, strict=True)):
        autocast, kind = classes[name]
        if phase == Phase.BACKWARD and autocast == "wide" and kind in _FORWARD_RULE:
            autocast = "first"
        floating = [s for s in reads[op] if counted[s]]
        if autocast == "first":
            is_wide_op = flags[floating[0]] if floating else True
        else:
            is_wide_op = autocast == "wide" or (
                autocast == "promote" and any(flags[s] for s in floating)
            )
        for position, storage in enumerate(writes[op]):
            if not fixed[storage] and birth[storage] == op:
                flags[storage] = is_wide_op or (position > 0 and kind in _WITH_STATISTICS)
    return np.array(flags, dtype=bool)


#: Kinds whose further outputs are statistics, kept in FP32.
_WITH_STATISTICS = frozenset(kinds_where(lambda facts: facts.has_statistics))


def _storage_lists(raw: RawPass, side: str) -> list[list[int]]:
    ragged = raw.inputs if side == "inputs" else raw.outputs
    storages = raw.tensor_storage[ragged.values].tolist()
    bounds = ragged.start.tolist()
    return [storages[a:b] for a, b in pairwise(bounds)]
