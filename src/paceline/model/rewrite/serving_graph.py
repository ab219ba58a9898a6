"""A pass as an inference engine runs it, where that is not as the library writes it.

Libraries append each token's keys and values by making a longer copy of the cache; engines write
them in place. Products of one input are one kernel. Latent attention is not widened over the whole
cache: what widens keys is taken into the queries, what widens values into the output, and all
heads read one latent. Attention that a library writes out (scores with a cap, or with slopes of
positions) is one kernel, which reads keys and values once, not once for each head. A router is a
product and a kernel that chooses. What experts do between their products (sorting tokens, the
activation, summing) is part of one fused layer, whose measured times the two products stand for.
An indexer of sparse attention adds its heads' scores in one
kernel.

Adapters stand beside each dense product of a layer, as many as a device holds: one kernel
multiplies the rows of each request with the narrow matrix of its adapter, one that product with the
other, and adds it to what the layer gave. Tokens of a step are of many requests, so that the
kernels are products of a group, which read the adapters that some request has; a prompt has one.

Sources:
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    SOSP 2023, section 4 (the cache in place); Shoeybi et al., arXiv 1909.08053, section 3, and
    vLLM, ``QKVParallelLinear`` and ``MergedColumnParallelLinear`` (products of one input);
    DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.2 (absorbed widening); vLLM,
    ``fused_moe`` and ``topk_softmax``; Chen et al., "Punica: Multi-Tenant LoRA Serving", MLSys 2024
    (arXiv:2310.18547), section 4; vLLM, ``lora_shrink`` and ``lora_expand``, one launch of each
    for a layer's merged products; Hu et al., "LoRA", 2021 (arXiv:2106.09685); DeepSeek-AI,
    DeepGEMM, ``fp8_mqa_logits``; Dao-AILab, flash-attention, ``softcap`` and ``alibi_slopes`` of
    ``flash_attn_with_kvcache``, which vLLM's attention layers pass on (``logits_soft_cap``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import (
    EXPONENTS,
    NUM_MONOMIALS,
    FloatArray,
    IntArray,
    OpKind,
    Owner,
    Phase,
)
from paceline.model.graph.polynomial import constant, multiply, product
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.ops.optable import variants
from paceline.model.rewrite.draft import Draft, matmul_dims
from paceline.values import dataclass

_BATCH, _M, _N, _K = range(4)
_HEADS, _KV_HEADS, _QUERIES, _KV_LEN, _HEAD_SIZE, _CAUSAL = 1, 2, 3, 4, 5, 6
#: Ops between scores and their softmax, or it and its product with values, at most.
_LONGEST_CHAIN = 12
#: As many as items, and as many as tokens of their prompts.
_ITEMS, _TOKENS = np.eye(NUM_MONOMIALS)[[EXPONENTS.index((1, 0)), EXPONENTS.index((1, 1))]]
#: A multiply-add counts as two.
_FLOP = 2.0


def served(program: Program) -> Program:
    """``program`` with its cache in place, its latents absorbed and its products merged.

    A training step is returned as it is.
    """
    if np.isin(Phase.BACKWARD, program.ops.phase) or not len(program.ops):
        return program
    appends = _appends(program)
    program = _with_fused_attention(_absorbed(_in_place(program, appends), appends))
    program = _without_untouched(_with_fused_experts(program))
    return _with_merged_products(program).ordered().with_lives_over_uses()


def with_narrow_cache(program: Program, *, element_bytes: float) -> Program:
    """``program`` with keys and values of a cache in a narrow format, widened as they are read."""
    stores = program.stores
    is_cache = (stores.owner == Owner.KV_CACHE) & (stores.element_bytes > element_bytes)
    width = np.where(is_cache, element_bytes, stores.element_bytes)
    return replace(program, stores=replace(stores, element_bytes=width))


def with_served_adapters(
    program: Program, *, rank: int, count: int, is_shared: bool, element_bytes: float
) -> Program:
    """``program`` with adapters on every dense product but the last, which is the head.

    Experts keep their weights alone: adapters of each are not what engines are asked for.

    Args:
        program: A pass as an engine runs it, in the formats of its precision.
        rank: R.
        count: Adapters on the device.
        is_shared: Whether all tokens of the pass are of one request.
        element_bytes: Of an adapter's numbers, as wide as activations.

    Raises:
        InvalidInputError: The pass trains.
    """
    if np.isin(Phase.BACKWARD, program.ops.phase):
        raise InvalidInputError(
            "many adapters are served by an engine, and this step trains",
            hint="leave num_adapters out: lora_rank trains one",
        )
    products = _dense_products(program)[0][:-1]
    dims, groups = program.dims[program.ops.dims[products]], 1.0 if is_shared else float(count)
    every, inputs, outputs = dims[:, 1], dims[:, 3], dims[:, 2]
    r, a = (constant(np.full(len(products), one)) for one in (float(rank), groups))
    draft = Draft(program)
    down_size, up_size = multiply(inputs, r), multiply(r, outputs)
    down, up = (
        draft.parameters(count * size, element_bytes=element_bytes) for size in (down_size, up_size)
    )
    thin, wide = multiply(every, r), multiply(every, outputs)
    hidden = draft.stores(thin, is_wide=True, element_bytes=element_bytes)
    source, result = program.read(products, 0), program.written(products, 0)
    deep: FloatArray = multiply(every, inputs)
    variant = variants()["MATMUL", "adapters"]
    draft.ops(
        OpKind.MATMUL, products, 0.1, dims=matmul_dims(a, every / groups, r, inputs),
        reads=[(source, deep), (down, groups * down_size)], writes=[(hidden, thin)],
        variant=variant,
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, products, 0.2, dims=matmul_dims(a, every / groups, outputs, r),
        reads=[(hidden, thin), (result, wide), (up, groups * up_size)], writes=[(result, wide)],
        variant=variant,
    )  # fmt: skip
    return draft.joined().ordered().with_lives_over_uses()


def _appends(program: Program) -> IntArray:
    """Copies that read a cache to write a longer one."""
    is_cache = program.stores.owner[program.reads.storage] == Owner.KV_CACHE
    reads_cache = np.bincount(program.reads.op[is_cache], minlength=len(program.ops)) > 0
    return np.flatnonzero(reads_cache & (program.ops.kind == OpKind.COPY))


def _in_place(program: Program, appends: IntArray) -> Program:
    """Appending touches what is new alone, and what it hands on is the cache."""
    reads, writes, stores = program.reads, program.writes, program.stores
    is_append = _among(appends, len(program.ops))
    is_old = is_append[reads.op] & (stores.owner[reads.storage] == Owner.KV_CACHE)
    reads = reads.kept(~is_old)
    new = np.zeros((len(program.ops), NUM_MONOMIALS))
    np.add.at(new, reads.op, reads.elements)
    rows = is_append[writes.op]
    written = np.where(rows[:, None], new[writes.op], writes.elements)
    dims = program.dims.copy()
    dims[program.ops.dims[appends], 0] = new[appends]
    owner = stores.owner.copy()
    owner[writes.storage[rows]] = Owner.KV_CACHE
    return replace(
        program,
        reads=reads,
        writes=replace(writes, elements=written),
        dims=dims,
        stores=replace(stores, owner=owner),
    )


def _among(ops: IntArray, num_ops: int) -> BoolArray:
    found = np.zeros(num_ops, dtype=np.bool_)
    found[ops] = True
    return found


def _absorbed(program: Program, appends: IntArray) -> Program:
    """Latent attention over the latents themselves, module by module."""
    cached = program.writes.storage[np.isin(program.writes.op, appends)]
    if not _reading(program, OpKind.MATMUL, cached).size:
        return _without_idle_copies(program)
    for attention in np.flatnonzero(program.ops.kind == OpKind.ATTENTION):
        mine = appends[program.ops.module[appends] == program.ops.module[attention]]
        caches = program.writes.storage[np.isin(program.writes.op, mine)]
        widening = _reading(program, OpKind.MATMUL, caches)
        if widening.size == 1:
            program = _with_latents(program, int(attention), int(widening[0]), caches)
    return _without_idle_copies(program)


def _reading(program: Program, kind: OpKind, storages: IntArray) -> IntArray:
    """Ops of a kind that read one of some storages."""
    ops = np.unique(program.reads.op[np.isin(program.reads.storage, storages)])
    return np.asarray(ops[program.ops.kind[ops] == kind])


def _with_latents(program: Program, attention: int, widening: int, caches: IntArray) -> Program:
    """One module: ``widening`` is a product per head and token, ``attention`` has one latent head.

    Every cached number is read once; the latent, which ``widening`` read, is keys and values.
    """
    ops, dims, flop = program.ops, program.dims.copy(), program.ops.flop.copy()
    of_product, of_attention = ops.dims[widening], ops.dims[attention]
    queries, heads = dims[of_attention, _QUERIES, 0], dims[of_attention, _HEADS, 0]
    tokens = queries * dims[of_attention, 0]
    latent = dims[of_product, _K, 0]
    cached = program.stores.elements[caches]
    per_token = float((cached.sum(axis=0)[np.newaxis] @ _ONES)[0])
    per_token /= float(product(dims[of_attention, [0, _KV_LEN]][np.newaxis])[0] @ _ONES)
    flop[widening] = _FLOP * tokens * dims[of_product, _N, 0] * latent
    dims[of_product, _N] /= heads
    dims[of_product, _BATCH] = dims[of_attention, _HEADS]
    dims[of_product, _M] = tokens
    pairs = product(dims[of_attention, [0, _KV_LEN]][np.newaxis])[0]
    flop[attention] = _FLOP * heads * queries * pairs * (per_token + latent)
    dims[of_attention, _KV_HEADS] = _constant(1.0)
    dims[of_attention, _HEAD_SIZE] = _constant(per_token)
    passing = heads * latent * tokens
    elements = program.stores.elements.copy()
    elements[program.writes.storage[program.writes.op == widening]] = passing
    return replace(
        program,
        stores=replace(program.stores, elements=elements),
        ops=replace(ops, flop=flop),
        dims=dims,
        reads=_latent_reads(program, attention, widening, caches, passing),
        writes=_resized(program.writes, program.writes.op == widening, passing),
    )


#: Every monomial at one: sums of coefficients compare polynomials of the same shape.
_ONES: FloatArray = np.ones(NUM_MONOMIALS)


def _constant(value: float) -> FloatArray:
    return np.asarray(value * (np.arange(NUM_MONOMIALS) == 0))


def _resized(accesses: Accesses, chosen: BoolArray, elements: FloatArray) -> Accesses:
    return replace(accesses, elements=np.where(chosen[:, None], elements, accesses.elements))


def _latent_reads(
    program: Program, attention: int, widening: int, caches: IntArray, passing: FloatArray
) -> Accesses:
    """Attention reads its queries, as wide as latents, and the caches; the product its weight."""
    reads, owner = program.reads, program.stores.owner
    of_attention = np.flatnonzero(reads.op == attention)
    is_query = np.zeros(len(reads.op), dtype=np.bool_)
    is_query[of_attention[:1]] = True
    kept = reads.kept((reads.op != attention) | is_query)
    is_query = is_query[(reads.op != attention) | is_query]
    is_input = (kept.op == widening) & (owner[kept.storage] != Owner.PARAMETER)
    kept = _resized(kept, is_query | is_input, passing)
    return Accesses(
        op=np.append(kept.op, np.full(len(caches), attention)),
        storage=np.append(kept.storage, caches),
        elements=np.concatenate((kept.elements, program.stores.elements[caches])),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Written:
    """N attentions that are written out.

    Attributes:
        scores: Products of queries and keys, (N,).
        values: Products of probabilities and values, (N,).
        between: All ops from ones to the others, these included.
    """

    scores: IntArray
    values: IntArray
    between: IntArray


def _with_fused_attention(program: Program) -> Program:
    """Scores, what is done to them, their softmax and the product with values as one op."""
    found = _written_attention(program)
    if not found.values.size:
        return program
    source, sizes = _unrepeated(program), program.stores.elements
    query, key = (_from_last(program.reads, found.scores, n) for n in (2, 1))
    value = _from_last(program.reads, found.values, 1)
    scores = program.dims[program.ops.dims[found.scores]]
    dims = np.zeros_like(scores)
    dims[:, 0] = _ITEMS
    dims[:, _HEADS, 0] = scores[:, _BATCH] @ _ONES
    dims[:, _KV_HEADS, 0] = dims[:, _HEADS, 0] * (sizes[source[key]] @ _ONES / (sizes[key] @ _ONES))
    dims[:, _QUERIES], dims[:, _KV_LEN], dims[:, _HEAD_SIZE] = scores[:, [_M, _N, _K]].swapaxes(
        0, 1
    )
    dims[:, _CAUSAL, 0] = (scores[:, _M] == scores[:, _N]).all(axis=1)
    draft, result = Draft(program), program.written(found.values, 0)
    draft.ops(
        OpKind.ATTENTION, found.values, 0.1, dims=dims,
        reads=[(one, sizes[one]) for one in (query, source[key], source[value])],
        writes=[(result, sizes[result])],
    )  # fmt: skip
    fused = draft.joined().without_ops(found.between).ordered().with_lives_over_uses()
    return _without_idle_copies(fused)


def _written_attention(program: Program) -> _Written:
    """Softmaxes between two products of activations, one of all pairs of queries and keys."""
    ops, dims = program.ops, program.dims[program.ops.dims]
    softmax = np.flatnonzero(ops.kind == OpKind.SOFTMAX)
    maker, taken, reader = _made_of(program)
    back, on = [maker[program.read(softmax, 0)]], [reader[program.written(softmax, 0)]]
    result = _first_written(program)
    for _ in range(_LONGEST_CHAIN):
        back.append(_passed(program, back[-1], maker[taken[back[-1]]]))
        on.append(_passed(program, on[-1], reader[result[on[-1]]]))
    scores, values = back[-1], on[-1]
    is_product = (ops.kind == OpKind.MATMUL) & ~_reads_weight(program)
    is_product &= (dims[:, _BATCH] == dims[:, _BATCH].sum(axis=1)[:, None] * _ITEMS).all(axis=1)
    pairs = (scores >= 0) & (values >= 0) & is_product[scores] & is_product[values]
    pairs &= (dims[scores][:, [_BATCH, _M, _N]] == dims[values][:, [_BATCH, _M, _K]]).all(
        axis=(1, 2)
    )
    between = np.concatenate([one[pairs] for one in (softmax, *back, *on)])
    return _Written(scores=scores[pairs], values=values[pairs], between=np.unique(between))


def _passed(program: Program, ops: IntArray, onwards: IntArray) -> IntArray:
    """One op further along chains of ops that change no size; what is no such op stays."""
    is_cheap = among(program.ops.kind[ops], (OpKind.ELEMENTWISE, OpKind.COPY)) & (ops >= 0)
    return np.where(is_cheap, onwards, ops)


def _first_written(program: Program) -> IntArray:
    """The first storage that each op writes; -1 where it writes none."""
    writes, result = program.writes, np.full(len(program.ops), -1)
    result[writes.op[::-1]] = writes.storage[::-1]
    return result


def _made_of(program: Program) -> tuple[IntArray, IntArray, IntArray]:
    """What writes each storage, what each op takes on, and what reads each storage.

    That is the last op that writes it, the only input as large as the result, and the only op that
    reads it; -1 where there is none, and at the end of each.
    """
    reads, sizes = program.reads, program.stores.elements
    maker, reader = np.full(len(sizes), -1), np.full(len(sizes), -1)
    maker[program.writes.storage] = program.writes.op
    reader[reads.storage] = reads.op
    reader[np.bincount(reads.storage, minlength=len(sizes)) != 1] = -1
    taken, result = np.full(len(program.ops), -1), _first_written(program)
    same = (sizes[reads.storage] == sizes[result[reads.op]]).all(axis=1) & (result[reads.op] >= 0)
    taken[reads.op[same]] = reads.storage[same]
    taken[np.bincount(reads.op[same], minlength=len(taken)) != 1] = -1
    return np.append(maker, -1), np.append(taken, -1), np.append(reader, -1)


def _from_last(accesses: Accesses, ops: IntArray, position: int) -> IntArray:
    """The storage that each op accesses at ``position`` from the last, which is 1."""
    order = np.argsort(accesses.op, kind="stable")
    end = np.searchsorted(accesses.op[order], ops, side="right")
    return np.asarray(accesses.storage[order[end - position]])


def _unrepeated(program: Program) -> IntArray:
    """What each storage repeats, such as keys of fewer heads; itself where it repeats nothing."""
    reads, writes, stores = program.reads, program.writes, program.stores
    size, source = stores.elements @ _ONES, np.arange(len(stores))
    num_inputs = np.bincount(reads.op, minlength=len(program.ops))
    read = np.full(len(program.ops), -1)
    read[reads.op] = reads.storage
    copied = (program.ops.kind == OpKind.COPY)[writes.op] & (num_inputs[writes.op] == 1)
    copied &= stores.owner[writes.storage] != Owner.KV_CACHE
    copied &= size[read[writes.op]] < size[writes.storage]
    source[writes.storage[copied]] = read[writes.op[copied]]
    return source


def _without_idle_copies(program: Program) -> Program:
    """Copies of what nobody reads any more are not made."""
    is_read = np.bincount(program.reads.storage, minlength=len(program.stores)) > 0
    writes = program.writes
    useful = np.bincount(writes.op[is_read[writes.storage]], minlength=len(program.ops)) > 0
    outlives = program.stores.owner[writes.storage] == Owner.KV_CACHE
    useful |= np.bincount(writes.op[outlives], minlength=len(program.ops)) > 0
    idle = np.flatnonzero((program.ops.kind == OpKind.COPY) & ~useful)
    return program.without_ops(idle) if idle.size else program


def _without_untouched(program: Program) -> Program:
    """What no op makes or reads any more takes no memory, such as keys that latents stand for."""
    stores = program.stores
    used = np.concatenate((program.reads.storage, program.writes.storage))
    is_idle = (np.bincount(used, minlength=len(stores)) == 0) & (stores.owner == Owner.ACTIVATION)
    elements = np.where(is_idle[:, np.newaxis], 0.0, stores.elements)
    return replace(program, stores=replace(stores, elements=elements))


def _with_fused_experts(program: Program) -> Program:
    """Layers of experts as their products alone, and routers as a product and one kernel."""
    ops = program.ops
    is_product = ops.kind == OpKind.MATMUL
    is_expert = is_product & (program.dims[ops.dims, _BATCH, 0] > 1.0) & _reads_weight(program)
    homes = {program.modules[m] for m in np.unique(ops.module[is_expert])}
    layers = np.array([any(_is_inside(m, home) for home in homes) for m in program.modules])
    routers = np.zeros(len(program.modules), dtype=np.bool_)
    routers[ops.module[ops.kind == OpKind.SORT]] = bool(homes)
    in_layer, in_router = layers[ops.module], (routers & ~layers)[ops.module]
    chooses = np.flatnonzero(in_router & ~is_product)
    _, first = np.unique(ops.module[chooses], return_index=True)
    kept = _among(chooses[first], len(ops))
    kind = np.where(kept, int(OpKind.SOFTMAX), ops.kind)
    variant = np.where(kept, 0, ops.variant)
    program = replace(program, ops=replace(ops, kind=kind, variant=variant))
    program = _without_scores_by_head(program, in_router)
    idle = np.flatnonzero((in_layer | in_router) & ~is_product & ~kept)
    return program.without_ops(idle) if idle.size else program


def _without_scores_by_head(program: Program, in_router: BoolArray) -> Program:
    """Scores of tokens that a router chooses among, as one kernel adds its heads before it writes.

    Such a router (the indexer of sparse attention) multiplies queries of several heads by keys:
    what every head says of every pair stays in the kernel, and queries share one copy of the keys.
    """
    dims = program.dims[program.ops.dims]
    scores = in_router & (program.ops.kind == OpKind.MATMUL) & ~_reads_weight(program)
    scores &= (dims[:, _M, 0] > 1.0) & ~dims[:, _M, 1:].any(axis=1)
    inside = _among(program.writes.storage[in_router[program.writes.op]], len(program.stores))
    elements = program.stores.elements.copy()
    for op in np.flatnonzero(scores):
        by_head, keys = product(dims[op][[[_BATCH, _M, _N], [_BATCH, _N, _K]]])
        elements[inside & (program.stores.elements == by_head).all(axis=1)] = 0.0
        if (dims[op, _BATCH] == _TOKENS).all():
            shared = product(np.stack((_ITEMS, dims[op, _N], dims[op, _K]))[None])[0]
            elements[(program.stores.elements == keys).all(axis=1)] = shared
    changed = (elements != program.stores.elements).any(axis=1)
    reads, writes = program.reads, program.writes
    return replace(
        program,
        stores=replace(program.stores, elements=elements),
        reads=_resized(reads, changed[reads.storage], elements[reads.storage]),
        writes=_resized(writes, changed[writes.storage], elements[writes.storage]),
    )


def _is_inside(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def _reads_weight(program: Program) -> BoolArray:
    """Whether each op reads a parameter, (num_ops,)."""
    is_weight = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    return np.asarray(np.bincount(program.reads.op[is_weight], minlength=len(program.ops)) > 0)


def _with_merged_products(program: Program) -> Program:
    """Dense products of one input as one: the first of them, as wide as all."""
    products, source = _dense_products(program)
    if not products.size:
        return program
    key = np.column_stack((source, _sizes(program, products)))
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    leader = np.arange(len(program.ops))
    leader[products] = products[first[group.ravel()]]
    followers = products[leader[products] != products]
    dims, flop = program.dims.copy(), program.ops.flop.copy()
    of = program.ops.dims
    np.add.at(dims[:, _N], of[leader[followers]], program.dims[of[followers], _N])
    np.add.at(flop, leader[followers], program.ops.flop[followers])
    again = np.isin(program.reads.op, followers) & (
        program.stores.owner[program.reads.storage] != Owner.PARAMETER
    )
    reads = program.reads.kept(~again)
    merged = replace(
        program,
        ops=replace(program.ops, flop=flop),
        dims=dims,
        reads=replace(reads, op=leader[reads.op]),
        writes=replace(program.writes, op=leader[program.writes.op]),
    )
    return merged.without_ops(followers)


def _dense_products(program: Program) -> tuple[IntArray, IntArray]:
    """Products of one activation and a weight, and that activation."""
    ops, reads, owner = program.ops, program.reads, program.stores.owner
    is_weight = owner[reads.storage] == Owner.PARAMETER
    num_ops = len(ops)
    inputs = np.bincount(reads.op[~is_weight], minlength=num_ops)
    weights = np.bincount(reads.op[is_weight], minlength=num_ops)
    is_alone = (program.dims[ops.dims, _BATCH] == _constant(1.0)).all(axis=1)
    chosen = (ops.kind == OpKind.MATMUL) & is_alone & (inputs == 1) & (weights >= 1)
    source = np.full(num_ops, -1)
    source[reads.op[~is_weight]] = reads.storage[~is_weight]
    products = np.flatnonzero(chosen)
    return products, source[products]


def _sizes(program: Program, products: IntArray) -> FloatArray:
    """Rows and depth of products, (num_products, 18)."""
    dims = program.dims[program.ops.dims[products]]
    return np.asarray(dims[:, [_M, _K]].reshape(len(products), -1))
