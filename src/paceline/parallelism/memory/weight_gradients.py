"""Ops of the backward pass that make gradients of weights, which may be put off.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import Owner, Phase
from paceline.model.graph.program import Program

#: Casts and copies between the product that makes a gradient and the gradient as it is kept.
_MOST_STEPS = 4


def makes_weight_gradients(program: Program) -> npt.NDArray[np.bool_]:
    """Ops of the backward pass that only gradients of parameters need, (num_ops,).

    What makes a parameter's gradient together with that of an input is none of them.
    """
    reads, writes, num_ops = program.reads, program.writes, len(program.ops)
    is_late = program.ops.phase == Phase.BACKWARD
    is_for_weights = program.stores.owner == Owner.GRADIENT
    only = np.zeros(num_ops, dtype=np.bool_)
    for _ in range(_MOST_STEPS):
        only = is_late.copy()
        only[writes.op[~is_for_weights[writes.storage]]] = False
        is_needed = np.zeros(len(program.stores), dtype=np.bool_)
        is_needed[reads.storage[~only[reads.op]]] = True
        made = np.zeros(len(program.stores), dtype=np.bool_)
        made[writes.storage[is_late[writes.op]]] = True
        is_for_weights = (program.stores.owner == Owner.GRADIENT) | (made & ~is_needed)
    return only


def put_off_with_weights(program: Program) -> npt.NDArray[np.bool_]:
    """Activations and gradients made in backward that only-weight gradients read, (num_storages,).

    They are kept until these gradients are made, whenever that is; what is recomputed for them too.
    """
    reads, stores = program.reads, program.stores
    is_read = np.zeros(len(stores), dtype=np.bool_)
    is_read[reads.storage[makes_weight_gradients(program)[reads.op]]] = True
    is_made = program.position_of(stores.birth) >= program.first_backward()
    return np.asarray(is_read & is_made & (stores.owner == Owner.ACTIVATION))
