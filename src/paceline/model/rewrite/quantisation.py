"""Weight-only quantisation: dense weights stored in 8 or 4 bits, arithmetic as before.

Eager libraries widen a weight into a temporary before each product; fused kernels widen inside.
What automatic differentiation keeps of that is a setting of its own (`FrozenProducts`).
Embeddings, norms, the last product (the head of a language model) and weights that are trained keep
their format. bitsandbytes narrows all other linear layers; GPTQ and AWQ narrow the blocks of the
language model, and leave towers that read pictures or sound as they are. Some formats narrow the
experts of a mixture alone.
Files of llama.cpp narrow the head in its own way, and tables of words as the layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from paceline.model.graph.costs import FrozenProducts
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner, Phase
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import BoolArray, Program
from paceline.model.ops.optable import read_table, variants
from paceline.model.rewrite.draft import Draft, row_dims

#: Of what widens, where columns are multiplied apart.
_OUTLIERS = variants()["DEQUANTIZE", "outliers"]


def quantised(
    program: Program, weight_format: str, *, is_fused: bool, keeps_inputs: bool = False,
    has_convolutions: bool = False, products: FrozenProducts = "widened", head_format: str = "",
    finds_outliers: bool = False,
) -> Program:  # fmt: skip
    """``program`` with its untrained dense weights quantised.

    Args:
        program: Of an inference, or of a training step whose base is frozen; ordered.
        weight_format: A row of ``quantisation.csv``.
        is_fused: Whether kernels widen the weights themselves.
        keeps_inputs: Whether what is multiplied with a weight stays until the weight's last use.
        has_convolutions: Whether weights of convolutions are quantised too.
        products: What products with such weights keep for the backward pass.
        head_format: Of the last product's weights, also where they are the table of words, which
            else is quantised as the layers are; both keep their format if empty.
        finds_outliers: Whether a loop multiplies large columns of the inputs apart, as LLM.int8()
            does in kernels of its own (Dettmers et al. 2022, arXiv:2208.07339).
    """
    kinds = (OpKind.MATMUL, OpKind.CONV) if has_convolutions else (OpKind.MATMUL,)
    chosen = _narrow_weights(program, weight_format, kinds)
    if products == "cast":
        program = _with_inputs_cast(program, chosen)
        chosen = _narrow_weights(program, weight_format, kinds)
    if keeps_inputs or products in ("held", "attached"):
        program, kept = _with_inputs_kept(program, chosen)
        program = _with_inputs_of_the_step_before(program, kept) if products == "held" else program
        program = _with_inputs_attached(program, kept) if products == "attached" else program
        chosen = _narrow_weights(program, weight_format, kinds)
    stores = program.stores
    whole_bytes = stores.element_bytes
    width = np.where(chosen, bytes_per_element(weight_format), stores.element_bytes)
    if head_format:
        words = _word_tables(program)
        width = np.where(words, bytes_per_element(weight_format), width)
        chosen, head = chosen | words, _head_weights(program)
        width, chosen = np.where(head, bytes_per_element(head_format), width), chosen | head
    stores = replace(stores, element_bytes=width, is_floating=stores.is_floating & ~chosen)
    program = replace(program, stores=stores)
    if is_fused:
        return program
    variant = _OUTLIERS if finds_outliers else 0
    return _with_dequantisation(program, chosen, whole_bytes, variant, is_once=products == "kept")


@cache
def bytes_per_element(weight_format: str) -> float:
    """Bytes of one weight with its share of the scales.

    >>> bytes_per_element("int4")
    0.515625
    """
    return float(_facts(weight_format)["bytes_per_element"])


def _facts(weight_format: str) -> Mapping[str, str]:
    return next(row for row in read_table("quantisation.csv") if row["format"] == weight_format)


def _narrow_weights(program: Program, weight_format: str, kinds: Sequence[OpKind]) -> BoolArray:
    """What a format narrows: dense weights, those of a language model's blocks, or of experts."""
    dense, narrows = _dense_weights(program, kinds), _facts(weight_format)["narrows"]
    if narrows == "blocks":
        dense = dense & _weights_of_words(program)
    if narrows == "experts":
        of_experts = dense & _expert_weights(program)
        return of_experts if of_experts.any() else dense
    return dense


def _weights_of_words(program: Program) -> BoolArray:
    """Storages that the row of numbered blocks reads which ends at the head, and its encoder's.

    All of them where no product lies in such a row.

    Source: AutoGPTQ/AutoGPTQ, modeling/qwen.py (``layers_block_name``), huggingface/optimum 1.23.3,
        gptq/constants.py (``BLOCK_PATTERNS``) and casper-hansen/AutoAWQ, models/qwen2vl.py
        (``get_model_layers``): one list of blocks, that of the language model (read 2026-11-29).
    """
    ops, reads = program.ops, program.reads
    rows = np.array([_row_of_blocks(name) for name in program.modules])[ops.module]
    is_product = (ops.kind == OpKind.MATMUL) & (ops.phase == Phase.FORWARD) & (rows != "")
    if not is_product.any():
        return np.ones(len(program.stores), dtype=bool)
    last = str(rows[np.flatnonzero(is_product)[-1]])
    is_read = np.zeros(len(program.stores), dtype=bool)
    is_own = np.isin(rows, (last, last.replace("decoder", "encoder")))
    is_read[reads.storage[is_own[reads.op]]] = True
    return is_read


def _row_of_blocks(module: str) -> str:
    """What comes before the first number of a path; nothing of one that has none.

    >>> _row_of_blocks("model.layers.3.mlp.experts.0"), _row_of_blocks("lm_head")
    ('model.layers', '')
    """
    parts = module.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdecimal()), 0)
    return ".".join(parts[:number])


def _expert_weights(program: Program) -> BoolArray:
    """Storages that products of experts read, of which one token has less than a row in each.

    A rank with one expert, or with tokens of many others, is told by the name of its layers.
    """
    ops, reads = program.ops, program.reads
    dims = program.dims[ops.dims]
    rows_of_one = dims[:, 1].sum(axis=1)
    is_named = np.array([name.rpartition(".")[2] == "experts" for name in program.modules])
    is_expert = (dims[:, 0, 0] > 1) & (rows_of_one > 0.0) & (rows_of_one < 1.0)
    is_expert = (is_expert | is_named[ops.module]) & (ops.kind == OpKind.MATMUL)
    is_read = np.zeros(len(program.stores), dtype=bool)
    is_read[reads.storage[is_expert[reads.op]]] = True
    return is_read


def _dense_weights(program: Program, kinds: Sequence[OpKind]) -> BoolArray:
    """Parameters that are read as matrices by some ops only: what is trained, its update reads."""
    stores, reads = program.stores, program.reads
    is_product = np.isin(program.ops.kind, kinds)[reads.op]
    by_product = np.bincount(reads.storage[is_product], minlength=len(stores))
    by_others = np.bincount(reads.storage[~is_product], minlength=len(stores))
    is_matrix = stores.elements[:, 0] > _largest_bias(program)
    is_weight = (stores.owner == Owner.PARAMETER) & is_matrix
    is_weight[_read_by_head(program)] = False
    return np.asarray(is_weight & (by_product > 0) & (by_others == 0))


def _word_tables(program: Program) -> BoolArray:
    """Matrices that lookups read."""
    reads, stores = program.reads, program.stores
    is_table = np.zeros(len(stores), dtype=bool)
    is_table[reads.storage[program.ops.kind[reads.op] == OpKind.EMBEDDING]] = True
    is_matrix = stores.elements[:, 0] > _largest_bias(program)
    return np.asarray(is_table & is_matrix & (stores.owner == Owner.PARAMETER))


def _head_weights(program: Program) -> BoolArray:
    """Matrices that the last product reads."""
    stores = program.stores
    is_head = np.zeros(len(stores), dtype=bool)
    is_head[_read_by_head(program)] = True
    is_matrix = stores.elements[:, 0] > _largest_bias(program)
    return np.asarray(is_head & is_matrix & (stores.owner == Owner.PARAMETER))


def _read_by_head(program: Program) -> IntArray:
    """What the last product of the forward pass reads."""
    is_forward = (program.ops.kind == OpKind.MATMUL) & (program.ops.phase == Phase.FORWARD)
    head = np.flatnonzero(is_forward)[-1:]
    storages: IntArray = program.reads.storage[np.isin(program.reads.op, head)]
    return storages


def _largest_bias(program: Program) -> float:
    """No vector of a product is longer than its longest side."""
    rows = program.ops.dims[program.ops.kind == OpKind.MATMUL]
    return float(program.dims[rows][:, 2:4, 0].max(initial=0.0))


def _with_inputs_kept(program: Program, chosen: BoolArray) -> tuple[Program, IntArray]:
    """Operands of forward products with chosen weights live as long as the weight is read.

    Returns:
        The program, and these operands.

    Source: bitsandbytes 0.42.0 and 0.43.0, autograd/_functions.py, `MatMul4Bit.forward`, which
        keeps ``ctx.tensors = (A, B)``; 0.43.3 keeps ``(None, B)`` (read 2026-11-28).
    """
    reads, stores = program.reads, program.stores
    of_weight = np.flatnonzero(chosen[reads.storage])
    last = np.full(len(stores), -1)
    np.maximum.at(last, reads.storage[of_weight], reads.op[of_weight])
    until = np.full(len(program.ops), -1)
    until[reads.op[of_weight]] = last[reads.storage[of_weight]]
    is_forward = program.ops.phase == Phase.FORWARD
    kept = np.flatnonzero(is_forward[reads.op] & (until[reads.op] >= 0))
    death = stores.death.copy()
    np.maximum.at(death, reads.storage[kept], until[reads.op[kept]])
    is_operand = (stores.owner == Owner.ACTIVATION)[reads.storage[kept]]
    operands: IntArray = np.unique(reads.storage[kept][is_operand])
    return replace(program, stores=replace(stores, death=death)), operands


def _with_inputs_attached(program: Program, kept: IntArray) -> Program:
    """Operands in attributes of a graph, whose nodes are all there until backward has returned.

    A checkpoint that is not reentrant runs its block with hooks on what autograd saves, and builds
    the graph of it in the forward pass, attributes and all.

    Source: torch/utils/checkpoint.py, `_checkpoint_without_reentrant_generator`.
    """
    backward = np.flatnonzero(program.ops.phase == Phase.BACKWARD)
    death = program.stores.death.copy()
    death[kept] = backward[np.argmax(program.ops.position[backward])]
    return replace(program, stores=replace(program.stores, death=death))


def _with_inputs_of_the_step_before(program: Program, kept: IntArray) -> Program:
    """What the graph of the step before still holds until the loss of this one replaces its loss.

    Autograd lets go of what it saved as backward passes; attributes that a node has beside go with
    the node, and the loss of a loop holds all nodes.

    Source: Lightning-AI/litgpt, finetune/lora.py, `fit`: ``logits`` and ``loss`` are names of the
        loop, bound again when the next forward pass is done (read 2026-11-28).
    """
    draft = Draft(program)
    before = draft.stores(program.stores.elements[kept], is_wide=False)
    joined = draft.joined()
    position = np.where(program.ops.phase == Phase.FORWARD, program.ops.position, -np.inf)
    birth, death = joined.stores.birth.copy(), joined.stores.death.copy()
    width = joined.stores.element_bytes.copy()
    birth[before], death[before], width[before] = -1, int(position.argmax()), width[kept]
    stores = replace(joined.stores, birth=birth, death=death, element_bytes=width)
    return replace(joined, stores=stores)


def _with_dequantisation(
    program: Program, chosen: BoolArray, whole_bytes: FloatArray, variant: int, *, is_once: bool
) -> Program:
    """A copy of each chosen weight before each product that reads it, or one for all of them."""
    reads = program.reads
    rows = np.flatnonzero(chosen[reads.storage])
    rows = rows[np.argsort(program.ops.position[reads.op[rows]], kind="stable")]
    weight, op = reads.storage[rows], reads.op[rows]
    first = np.unique(weight, return_index=True)[1] if is_once else np.arange(len(rows))
    size = program.stores.elements[weight[first]]
    draft = Draft(program)
    widened = draft.stores(size, is_wide=False)
    draft.ops(
        OpKind.DEQUANTIZE, op[first], -0.5,
        dims=row_dims(size, constant(np.ones(len(first))), 1.0),
        reads=[(weight[first], size)], writes=[(widened, size)], variant=variant,
    )  # fmt: skip
    joined = draft.joined()
    storage, death = joined.reads.storage.copy(), joined.stores.death.copy()
    width = joined.stores.element_bytes.copy()
    copy = widened[np.searchsorted(weight[first], weight)] if is_once else widened
    storage[rows], death[copy], width[copy] = copy, op, whole_bytes[weight]
    return replace(
        joined,
        reads=replace(joined.reads, storage=storage),
        stores=replace(joined.stores, death=death, element_bytes=width),
    ).ordered()


def with_operands_cast(program: Program, in_8_bits: BoolArray) -> Program:
    """``program`` of training with a cast of each activation that products read in 8 bits.

    What enters a product, and the gradient of what leaves it, is read in 16 bits and written twice
    in 8: along rows, and along columns for the product that contracts over tokens. One cast serves
    all products that read it. Copies of weights, of which a step makes one, are not counted, and
    casts change no memory: where 8 bits are kept in place of 16, weights have copies as well.

    Args:
        program: Ordered; compilers do not fuse these casts.
        in_8_bits: Whether an op multiplies so, (num_ops,).

    Source: NVIDIA/TransformerEngine, ``common/cast``: one kernel that casts and transposes (FP8),
        or scales blocks of 32 along both (MXFP8).
    """
    reads = program.reads
    grows = reads.elements[:, 1:].any(axis=1)
    is_operand = in_8_bits[reads.op] & (program.stores.owner[reads.storage] == Owner.ACTIVATION)
    rows = np.flatnonzero(is_operand & grows)
    rows = rows[np.argsort(program.ops.position[reads.op[rows]], kind="stable")]
    rows = rows[np.unique(reads.storage[rows], return_index=True)[1]]
    size, draft = reads.elements[rows], Draft(program)
    once = constant(np.ones(len(rows)))
    draft.ops(
        OpKind.CAST, reads.op[rows], -0.5, dims=row_dims(size, once, 1.0),
        reads=[(reads.storage[rows], 2.0 * size)], writes=[],
    )  # fmt: skip
    return draft.joined().ordered()


def _with_inputs_cast(program: Program, chosen: BoolArray) -> Program:
    """What enters a forward product cast to 8 bits, op by op, each kept for its own backward pass.

    Its absolute values, of which the largest sets the scale; it in FP32; that over the scale. The
    latter two are in FP32 whatever the format of the model.

    Source: pytorch/ao 0.18, quantization/quant_primitives.py, `_choose_scale_float8` and
    `_quantize_affine_float8`; saved tensors of both counted on a CPU (2026-11-24).
    """
    reads, stores = program.reads, program.stores
    is_forward = program.ops.position < program.first_backward()
    rows = np.flatnonzero(chosen[reads.storage])
    rows = rows[np.argsort(program.ops.position[reads.op[rows]], kind="stable")]
    of_forward = rows[is_forward[reads.op[rows]]]
    later = dict(zip(reads.storage[rows], reads.op[rows], strict=True))
    forward = reads.op[of_forward]
    backward = np.array([later[weight] for weight in reads.storage[of_forward]], dtype=np.int64)
    has_gradient = ~is_forward[backward]
    forward, backward = forward[has_gradient], backward[has_gradient]
    enters = stores.elements[reads.storage][:, 1:].any(axis=1) & ~chosen[reads.storage]
    source = np.full(len(program.ops), -1)
    source[reads.op[enters]] = reads.storage[enters]
    forward, backward = (one[source[forward] >= 0] for one in (forward, backward))
    narrow = source[forward]
    size = stores.elements[narrow]
    draft = Draft(program)
    absolute = draft.stores(size, is_wide=False)
    wide, scaled = (draft.stores(size, is_wide=True) for _ in range(2))
    dims = row_dims(size, constant(np.ones(len(forward))), 1.0)
    steps = ((-0.9, narrow, absolute), (-0.8, narrow, wide), (-0.7, wide, scaled))
    for offset, read, written in steps:
        draft.ops(
            OpKind.CAST, forward, offset, dims=dims, reads=[(read, size)], writes=[(written, size)]
        )
    kept = [(one, size) for one in (scaled, wide, absolute)]
    draft.ops(OpKind.CAST, backward, 0.5, dims=dims, reads=kept, writes=[])
    joined = draft.joined()
    width = joined.stores.element_bytes.copy()
    width[absolute] = width[narrow]
    is_floating = joined.stores.is_floating.copy()
    is_floating[[*wide, *scaled]] = False
    stores = replace(joined.stores, element_bytes=width, is_floating=is_floating)
    return replace(joined, stores=stores).ordered().with_lives_over_uses()
