"""How the loss of a language model is computed: whole in FP32, in one kernel, or never whole.

The head of a model and its cross-entropy touch tensors of tokens × vocabulary: the logits, their
wide copy, the log-softmax, and two gradients. With ``wide`` the loss runs in FP32 whatever the
format of the model, as trainers that call ``logits.float()`` have it. With ``fused`` one kernel
reads the logits and writes their gradient in place; with ``fused-wide`` it does so on a wide copy,
as where a trainer widens logits before a kernel that replaces its loss, and as Megatron-LM's own
function does: its softmax lies in the wide copy, and so does the gradient; with ``compiled-wide`` a
compiler has made that function's parts, and each writes a new tensor before it copies it over the
old one. With ``shifted`` logits
are widened in place of the narrow ones and copied once more without each sequence's last token;
with ``wide-shifted`` the narrow ones stay as well, until the forward pass ends (``fused-`` before
either for one kernel on that copy). With ``chunked`` the head runs inside the loss a few tokens at
a time, so that neither logits nor gradient are ever whole; it computes the gradient at once and
costs no further product. With ``recomputed`` chunks keep nothing, and the product of the head runs
a second time in the backward pass.

Sources:
    Hsu et al., "Liger Kernel", 2024 (arXiv:2410.10989), section 3.2 (``fused``, ``chunked``: tokens
    of a chunk such that its logits are as large as the hidden states); Wijmans et al., "Cut Your
    Losses in Large-Vocabulary Language Models", 2024 (arXiv:2411.09009), and chunked losses of
    TRL and torchtune (``recomputed``); transformers, loss/loss_utils.py, ``ForCausalLMLoss``
    (``wide`` since 4.50, ``wide-shifted`` before), and models' own ``forward`` before 4.46
    (``shifted``; recalled 2026-11-24); Megatron-LM, core/tensor_parallel/cross_entropy.py,
    ``_VocabParallelCrossEntropy`` (``fused-wide``: ``torch.exp(..., out=exp_logits)`` on the FP32
    logits, which backward turns into their gradient; read 2026-11-28); core/fusions,
    ``fused_cross_entropy.py`` (``compiled-wide``: "Inductor materializes the new value in a fresh
    [s, b, v] buffer and copies it back", which its newest code avoids; read 2026-11-28).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Loss
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner, Phase, monomials
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.rewrite.draft import Draft, row_dims
from paceline.values import dataclass

_FP32_BYTES = 4.0
#: Tokens whose logits are there at a time where chunks are recomputed (TRL's ``chunked_nll``).
_CHUNK_TOKENS = 256
#: A point at which sizes are compared, far from any width of a model.
_PROBE = monomials(61.0, 4099.0)[0]
_SAME_SIZE_FRAC = 0.02
#: Losses on a shifted copy: whether in one kernel, and whether narrow logits stay beside wide ones.
_SHIFTED: dict[Loss, tuple[bool, bool]] = {
    "shifted": (False, False),
    "wide-shifted": (False, True),
    "fused-shifted": (True, False),
    "fused-wide-shifted": (True, True),
}
#: Losses that change nothing where no cross-entropy follows a head.
_WITHOUT_HEAD: tuple[Loss, ...] = ("wide", "shifted", "wide-shifted")
#: Losses made of ops that a compiler sees, rather than of kernels with a backward of their own.
WRITTEN_OUT: tuple[Loss, ...] = ("plain", *_WITHOUT_HEAD)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """The last product of a model with all that stands between it and the loss.

    Attributes:
        product: Op that makes the logits.
        logits: Their storage.
        source: Storage of what the product reads.
        ops: Ops of the loss and of its backward pass that touch something of the logits' size.
        stores: Storages of that size, the logits among them.
        gradient: Of them, what backward products of the head read.
    """

    product: int
    logits: int
    source: int
    ops: IntArray
    stores: IntArray
    gradient: int


def with_loss(program: Program, how: Loss) -> Program:
    """``program`` with its loss computed in that way.

    Args:
        program: Of a training step at its precision; ordered.
        how: In which way; ``plain`` leaves it as it was traced.

    Raises:
        InvalidInputError: The model has no head that a cross-entropy over classes follows.
    """
    if how == "plain" or not np.isfinite(program.first_backward()):
        return program
    head = head_of(program)
    if head is None:
        if how in _WITHOUT_HEAD:
            return program
        raise InvalidInputError(
            f"`loss={how}` needs a head that a cross-entropy follows, and this model has none",
            hint="leave `loss` as it is, or set `loss=plain`",
        )
    if how == "wide":
        return _wide(program, head)
    if how in ("fused-wide", "compiled-wide"):
        fused = _fused_wide(_wide(program, head))
        return _with_new_tensors(fused, head.logits) if how == "compiled-wide" else fused
    if how in _SHIFTED:
        is_fused, keeps_narrow = _SHIFTED[how]
        return _shifted(program, head, is_fused=is_fused, keeps_narrow=keeps_narrow)
    fused = _fused(program, head)
    if how == "fused":
        return fused
    size = program.stores.elements[head.source] if how == "chunked" else _rows_of(program, head)
    fused = _with_size(fused, head.logits, size)
    return fused if how == "chunked" else _recomputing(fused, head)


def head_of(program: Program) -> Head | None:
    """The head and the loss, found by what touches tensors of the logits' size."""
    kind, stores = program.ops.kind, program.stores
    losses = among(kind, (OpKind.CROSS_ENTROPY, OpKind.CROSS_ENTROPY_BACKWARD))
    sizes = stores.elements @ _PROBE
    read = program.reads.storage[losses[program.reads.op]]
    if not read.size:
        return None
    alike = np.abs(sizes / max(float(sizes[read].max()), 1.0) - 1.0) < _SAME_SIZE_FRAC
    alike &= stores.owner == Owner.ACTIVATION
    ops, found = _reached(program, losses, alike)
    is_product = kind == OpKind.MATMUL
    writers = program.writes.op[found[program.writes.storage] & is_product[program.writes.op]]
    writers = writers[program.ops.phase[writers] == Phase.FORWARD]
    readers = found[program.reads.storage] & is_product[program.reads.op]
    if not writers.size or not readers.any():
        return None
    product = int(writers[0])
    inputs = program.reads.storage[program.reads.op == product]
    grows = stores.elements[inputs][:, 1:].any(axis=1)
    written = program.writes.storage[program.writes.op == product]
    return Head(
        product=product,
        logits=int(written[found[written]][0]),
        source=int(inputs[grows][0]),
        ops=np.flatnonzero(ops),
        stores=np.flatnonzero(found),
        gradient=int(program.reads.storage[readers][-1]),
    )


def _reached(program: Program, losses: BoolArray, alike: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Ops, and storages that are alike, joined to the loss without a product between them."""
    op = np.concatenate((program.reads.op, program.writes.op))
    storage = np.concatenate((program.reads.storage, program.writes.storage))
    is_bridge = alike[storage] & (program.ops.kind[op] != OpKind.MATMUL)
    op, storage = op[is_bridge], storage[is_bridge]
    ops, found, before = losses.copy(), np.zeros(len(program.stores), dtype=np.bool_), -1
    while before != int(ops.sum()):
        before = int(ops.sum())
        found[storage[ops[op]]] = True
        ops[op[found[storage]]] = True
    return ops, found


def _fused(program: Program, head: Head) -> Program:
    """One op of the loss and one of its backward pass, both on the logits' own storage."""
    return _merged(program, head.ops, head.stores, head.logits)


def _fused_wide(program: Program) -> Program:
    """The same on the FP32 copy of narrow logits; in FP32, on the logits."""
    head = _found(program)
    is_wide = program.stores.element_bytes[head.stores] >= _FP32_BYTES
    is_cast = program.ops.kind[head.ops] == OpKind.CAST
    if not is_cast.any():
        return _fused(program, head)
    copy = program.written(head.ops[is_cast][:1], 0)[0]
    return _merged(program, head.ops[~is_cast], head.stores[is_wide], int(copy))


def _with_new_tensors(program: Program, logits: int) -> Program:
    """One more FP32 tensor of the logits' size while the loss runs, forward and backward.

    Whoever called it holds the logits that it was given until it returns.
    """
    kinds = (OpKind.CROSS_ENTROPY, OpKind.CROSS_ENTROPY_BACKWARD)
    ops = np.flatnonzero(among(program.ops.kind, kinds))
    draft = Draft(program)
    size = np.repeat(program.stores.elements[[logits]], len(ops), axis=0)
    new = draft.workspaces(size, element_bytes=_FP32_BYTES)
    joined = draft.joined()
    birth, death = joined.stores.birth.copy(), joined.stores.death.copy()
    birth[new] = death[new] = ops
    if program.position_of(death[[logits]])[0] < program.ops.position[ops].min():
        death[logits] = ops[program.ops.position[ops].argmin()]
    return replace(joined, stores=replace(joined.stores, birth=birth, death=death))


def _merged(program: Program, ops: IntArray, stores: IntArray, target: int) -> Program:
    """Of some ops those of the loss alone, on one of some storages."""
    kept = (OpKind.CROSS_ENTROPY, OpKind.CROSS_ENTROPY_BACKWARD)
    is_loss = np.isin(program.ops.kind[ops], kept)
    place = np.arange(len(program.stores))
    place[stores] = target
    elements = program.stores.elements.copy()
    elements[stores[stores != target]] = 0.0
    merged = replace(
        program,
        reads=replace(program.reads, storage=place[program.reads.storage]),
        writes=replace(program.writes, storage=place[program.writes.storage]),
        stores=replace(program.stores, elements=elements),
    ).without_ops(ops[~is_loss])
    death = merged.stores.death.copy()
    death[target] = merged.last_use()[target]
    return replace(merged, stores=replace(merged.stores, death=death))


def _with_size(program: Program, storage: int, size: FloatArray) -> Program:
    """A storage that holds a part of what is written to it, one after the other."""
    elements = program.stores.elements.copy()
    elements[storage] = size
    return replace(program, stores=replace(program.stores, elements=elements))


def _rows_of(program: Program, head: Head) -> FloatArray:
    """Logits of a chunk of tokens in FP32, their log-softmax and its gradient."""
    classes: FloatArray = program.dims[program.ops.dims[head.product], 2]
    times = 3.0 * _FP32_BYTES / float(program.stores.element_bytes[head.logits])
    return _CHUNK_TOKENS * times * classes


def _recomputing(program: Program, head: Head) -> Program:
    """The head's product once more before the backward pass of the loss."""
    beside = np.flatnonzero(program.ops.kind == OpKind.CROSS_ENTROPY_BACKWARD)[:1]
    reads = np.flatnonzero(program.reads.op == head.product)
    logits = np.array([head.logits])
    draft = Draft(program)
    draft.ops(
        OpKind.MATMUL, beside, -0.5, dims=program.dims[[program.ops.dims[head.product]]],
        reads=[(program.reads.storage[[r]], program.reads.elements[[r]]) for r in reads],
        writes=[(logits, program.writes.elements[program.writes.op == head.product][:1])],
    )  # fmt: skip
    return draft.joined().ordered().with_lives_over_uses()


def _wide(program: Program, head: Head) -> Program:
    """The loss on an FP32 copy of narrow logits, its gradient cast back."""
    stores = program.stores
    if (stores.element_bytes[head.stores] >= _FP32_BYTES).any():
        return program
    inner = head.stores[(head.stores != head.logits) & (head.stores != head.gradient)]
    width = stores.element_bytes.copy()
    width[inner] = _FP32_BYTES
    widened = replace(program, stores=replace(stores, element_bytes=width))
    return _on_copy(widened, head, OpKind.CAST, _FP32_BYTES)[0]


def _on_copy(
    program: Program, head: Head, kind: OpKind, element_bytes: float
) -> tuple[Program, IntArray]:
    """The loss on a copy of the logits, its gradient copied back; and storages of both copies."""
    draft = Draft(program)
    ends = np.array([head.logits, head.gradient])
    size = program.stores.elements[ends]
    copies = draft.stores(size, is_wide=True, element_bytes=element_bytes)
    first = _touching(program, program.reads, head.ops, head.logits)[:1]
    last = _touching(program, program.writes, head.ops, head.gradient)[-1:]
    made, copy = ((one[:1], size[:1]) for one in (ends, copies))
    draft.ops(kind, first, -0.5, dims=_cast_dims(size[:1]), reads=[made], writes=[copy])
    made, copy = ((one[1:], size[1:]) for one in (ends, copies))
    back = draft.ops(kind, last, 0.5, dims=_cast_dims(size[1:]), reads=[copy], writes=[made])
    joined = draft.joined()
    birth = joined.stores.birth.copy()
    birth[head.gradient] = back[0]
    of_loss = np.isin(np.arange(len(joined.ops)), head.ops)
    joined = replace(
        joined,
        reads=_moved(joined.reads, of_loss, head.logits, int(copies[0])),
        writes=_moved(joined.writes, of_loss, head.gradient, int(copies[1])),
        stores=replace(joined.stores, birth=birth),
    )
    return joined.ordered().with_lives_over_uses(), copies


def _shifted(program: Program, head: Head, *, is_fused: bool, keeps_narrow: bool) -> Program:
    """The loss on a copy of the wide logits that leaves out each sequence's last token.

    A function that widens and copies holds what it was given and what it made until it returns.
    """
    bytes_of_logits = float(program.stores.element_bytes[head.logits])
    inner = head.stores[(head.stores != head.logits) & (head.stores != head.gradient)]
    program, copies = _on_copy(program, head, OpKind.COPY, bytes_of_logits)
    if is_fused:
        ops = _found(program).ops
        copies_itself = _touches(program.writes, ops, copies[0]) & (
            program.ops.kind[ops] == OpKind.COPY
        ) | _touches(program.reads, ops, copies[1])
        program = _merged(program, ops[~copies_itself], np.append(inner, copies), int(copies[0]))
    return _held(_wide(program, _found(program)), int(copies[0]), keeps_narrow=keeps_narrow)


def _held(program: Program, copy: int, *, keeps_narrow: bool) -> Program:
    """What the copy was made of alive until the forward pass ends, and narrow logits so or not."""
    forward = np.flatnonzero(program.ops.position < program.first_backward())
    end = forward[np.argmax(program.ops.position[forward])]
    head, death = _found(program), program.stores.death.copy()
    maker = _touching(program, program.writes, head.ops, copy)[0]
    source = program.reads.storage[program.reads.op == maker]
    death[source] = end
    if head.logits not in source:
        cast = _touching(program, program.reads, head.ops, head.logits)[0]
        death[head.logits] = end if keeps_narrow else cast
    return replace(program, stores=replace(program.stores, death=death))


def _touches(accesses: Accesses, ops: IntArray, storage: int) -> BoolArray:
    """Whether each op touches a storage."""
    found: BoolArray = np.isin(ops, accesses.op[accesses.storage == storage])
    return found


def _found(program: Program) -> Head:
    head = head_of(program)
    assert head is not None
    return head


def _cast_dims(size: FloatArray) -> FloatArray:
    return row_dims(size, constant(np.ones(len(size))), 1.0)


def _moved(accesses: Accesses, of_loss: BoolArray, old: int, new: int) -> Accesses:
    """What the loss touches of one storage, at another instead."""
    rows = of_loss[accesses.op] & (accesses.storage == old)
    return replace(accesses, storage=np.where(rows, new, accesses.storage))


def _touching(program: Program, accesses: Accesses, ops: IntArray, storage: int) -> IntArray:
    """Of some ops those that touch a storage, in the order in which they run."""
    found = np.intersect1d(ops, accesses.op[accesses.storage == storage])
    return found[np.argsort(program.ops.position[found], kind="stable")]
