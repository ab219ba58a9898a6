"""What the last stage of a pipeline allocates in a pass: storages of its own blocks.

It starts the backward pass of a microbatch as soon as its forward pass ends, so that one pass
stands for it, however many microbatches the stages before it hold.
"""

from __future__ import annotations

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.belonging import home_of_update, parameter_of
from paceline.model.graph.block_names import blocks_of_ops, flow_of_blocks, is_numbered
from paceline.model.graph.graph import IntArray, Phase
from paceline.model.graph.program import Program


def stores_of_last_stage(program: Program, num_stages: int) -> IntArray:
    """Rows of storages that the last of so many stages holds, in their order.

    Layers are dealt out evenly, and the last stage has no more of them than any other, as the head
    and the loss are its own. Weights that other stages read too, such as a table that makes the
    logits, are there with all that belongs to them.

    Raises:
        InvalidInputError: More stages than layers.
    """
    module, phase = program.ops.module, program.ops.phase
    names = flow_of_blocks(program.modules, module[phase == Phase.FORWARD])
    layers = np.flatnonzero([is_numbered(name) for name in names])
    of_each = len(layers) // num_stages
    if not of_each:
        raise InvalidInputError(
            f"{num_stages} pipeline stages are more than the model's {len(layers)} layers",
            hint=f"use at most {len(layers)} stages",
        )
    is_last = blocks_of_ops(program.modules, module, names) >= layers[-of_each]
    reads, owned = program.reads, np.zeros(len(program.stores), dtype=np.bool_)
    owned[reads.storage[is_last[reads.op] & (phase[reads.op] == Phase.FORWARD)]] = True
    parameter = parameter_of(program)
    held = np.where(parameter >= 0, owned[parameter], is_last[home_of_update(program)])
    return np.flatnonzero(held)
