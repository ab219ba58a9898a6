"""Weights that tensor parallel can split in any op graph: column and row pairs, found by data flow.

A weight split by columns (its outputs) makes an activation split along its features. What is split
flows through ops that treat features independently (heads, activations, dropout) until a weight
takes it in along its rows (its inputs): that pair needs one reduction at its end and one at its
beginning in backward. Where split data meets an op that needs all features, the columns that made
it stay whole.

Sources:
    Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
    Parallelism", arXiv 1909.08053, section 3 (pairs, heads, vocabulary); Krizhevsky, "One weird
    trick for parallelizing convolutional neural networks", arXiv 1404.5997 (dense layers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, OpKind, Owner, Phase, monomials
from paceline.model.ops.registry import FACTS, dims_of, kinds_where
from paceline.values import dataclass

#: Tables of fewer rows are not worth a sum over ranks.
_MIN_SPLIT_ROWS = 4096
#: Ops that hand ids on as they are.
_HANDING_ON = (*kinds_where(lambda facts: facts.stream == "copy"), OpKind.INDEX)
_GROUPS, _HEIGHT = dims_of(OpKind.CONV, "groups", "h")
#: Distinct primes at which shape numbers are compared.
_PROBE = (7.0, 131.0)


class Role(IntEnum):
    """How a weight is split."""

    COLUMN = 0
    ROW = 1
    VOCABULARY = 2


@dataclass(frozen=True, slots=True)
class OpView:
    """One op with its storages apart.

    Attributes:
        index: Row in the op table.
        phase: Part of the step.
        module: Module index.
        dims: Shape numbers at the probe.
        parameters: Parameter storages read, with elements touched.
        inputs: Other storages read, with elements touched.
        outputs: Storages written.
        caches: Of the inputs, keys and values of earlier tokens, which are split like new ones.
        given: Of the inputs, those that are no facts of the model: what comes with the batch, and
            what other ops or a step before made.
        is_loss: Whether it is part of a loss over classes, which ranks that share them work out
            together: cross entropy, and the softmax that it reads.
    """

    index: int
    kind: OpKind
    phase: Phase
    module: int
    dims: tuple[float, ...]
    parameters: tuple[tuple[int, float], ...]
    inputs: tuple[tuple[int, float], ...]
    outputs: tuple[int, ...]
    caches: frozenset[int] = frozenset()
    given: frozenset[int] = frozenset()
    is_loss: bool = False

    @property
    def weight_dims(self) -> tuple[int, int] | None:
        """Shape numbers of the inputs and outputs of its matrix or filter; None for other ops."""
        return _weight_dims(self.kind)

    @property
    def weight(self) -> int | None:
        """The matrix or filter that a product reads; None for other ops."""
        if self.weight_dims is None or not self.parameters:
            return None
        return max(self.parameters, key=lambda entry: entry[1])[0]


@cache
def _weight_dims(kind: OpKind) -> tuple[int, int] | None:
    names = FACTS[kind].weight_dims
    if names is None or FACTS[kind].backward_of is not None:
        return None
    inputs, outputs = dims_of(kind, *names)
    return inputs, outputs


@lru_cache(maxsize=4)
def view_ops(graph: Graph) -> tuple[OpView, ...]:
    """Every op of a graph, in execution order; those of the last few graphs are kept."""
    point = monomials(*_PROBE)[0]
    elements = (graph.tensors.elements @ point).tolist()
    storage, owner = graph.tensors.storage.tolist(), graph.storages.owner.tolist()
    dims = (graph.ops.dims @ point).tolist()
    starts, ends = graph.ops.input_start.tolist(), graph.ops.output_start.tolist()
    reads, writes = graph.ops.input_tensor.tolist(), graph.ops.output_tensor.tolist()
    is_loss = _of_loss(graph).tolist()
    kinds, phases = tuple(OpKind), {int(phase): phase for phase in Phase}
    parameter, cache_of_tokens = int(Owner.PARAMETER), int(Owner.KV_CACHE)
    passing = int(Owner.INPUT), int(Owner.ACTIVATION)
    columns = (graph.ops.kind.tolist(), graph.ops.phase.tolist(), graph.ops.module.tolist())
    views = []
    for index, (kind, phase, module) in enumerate(zip(*columns, strict=True)):
        read = [(storage[t], elements[t]) for t in reads[starts[index] : starts[index + 1]]]
        views.append(
            OpView(
                index=index,
                kind=kinds[kind],
                phase=phases[phase],
                module=module,
                dims=tuple(dims[index]),
                parameters=tuple([e for e in read if owner[e[0]] == parameter]),
                inputs=tuple([e for e in read if owner[e[0]] != parameter]),
                outputs=tuple(storage[t] for t in writes[ends[index] : ends[index + 1]]),
                caches=frozenset([s for s, _ in read if owner[s] == cache_of_tokens]),
                given=frozenset([s for s, _ in read if owner[s] in passing]),
                is_loss=is_loss[index],
            )
        )
    return tuple(views)


def mark_states(views: Sequence[OpView], is_split: npt.NDArray[np.bool_], graph: Graph) -> None:
    """Mark, in place, gradients and states of marked parameters, which they follow in order."""
    owner = graph.storages.owner
    for op in views:
        if op.kind == OpKind.OPTIMIZER:
            split = np.array([is_split[s] for s, _ in op.parameters], dtype=np.bool_)
            for kind in (Owner.GRADIENT, Owner.OPTIMIZER_STATE):
                own = [s for s, _ in op.inputs if owner[s] == kind]
                is_split[own] = np.resize(split, len(own))


def _of_loss(graph: Graph) -> npt.NDArray[np.bool_]:
    """Ops of a loss over classes, (num_ops,), whether the model works it out or its training."""
    ops, storage = graph.ops, graph.tensors.storage
    op_of_read = np.repeat(np.arange(len(ops.kind)), np.diff(ops.input_start))
    op_of_write = np.repeat(np.arange(len(ops.kind)), np.diff(ops.output_start))
    asked = np.zeros(len(graph.storages.owner), dtype=np.bool_)
    asked[storage[ops.input_tensor[ops.kind[op_of_read] == OpKind.CROSS_ENTROPY]]] = True
    found = ops.phase == Phase.LOSS
    found[op_of_write[asked[storage[ops.output_tensor]]]] = True
    found |= ops.kind == OpKind.CROSS_ENTROPY
    return np.asarray(found & among(ops.phase, (Phase.FORWARD, Phase.LOSS)))


def word_tables(views: Sequence[OpView]) -> Mapping[int, float]:
    """Tables that are looked up by ids from outside the pass, with their rows, by storage.

    Positions and relative distances are counted by the model itself, and are none.
    """
    ids, made = set[int](), set[int]()
    found: dict[int, float] = {}
    for op in views:
        ids |= op.given - made
        made.update(op.outputs)
        read = {storage for storage, _ in op.inputs}
        if op.kind in _HANDING_ON and not op.parameters and read and read <= ids:
            ids.update(op.outputs)
        if op.kind == OpKind.EMBEDDING and op.parameters and read & ids:
            table, elements = op.parameters[0]
            found[table] = elements / op.dims[1]
    return found


def find_roles(
    views: Sequence[OpView],
    degree: float,
    *,
    splits_words: bool = True,
    by_heads: frozenset[int] = frozenset(),
) -> Mapping[int, Role]:
    """Role of every weight that can be split ``degree`` ways, by storage.

    Args:
        views: All ops of the graph.
        degree: Ranks that share a weight; weights of less than two outputs for each stay whole.
        splits_words: Whether vocabularies and the loss over them are split, too.
        by_heads: Modules between whose weights every head works by itself (`head_modules`).
    """
    forward = [op for op in views if op.phase in (Phase.FORWARD, Phase.LOSS)]
    words = word_tables(forward) if splits_words else None
    denied: set[int] = set()
    while True:
        follow = _Follow(degree, frozenset(denied), words, by_heads)
        for op in forward:
            follow.step(op)
        newly_denied = (follow.conflicts | follow.unclosed()) - denied
        if not newly_denied:
            return follow.roles
        denied |= newly_denied


def head_modules(
    views: Sequence[OpView], modules: Sequence[str], roles: Mapping[int, Role]
) -> frozenset[int]:
    """Modules in which a state for each head goes along the sequence, and that are not split yet.

    Linear attention, state spaces and gated delta rules mix tokens within a head, through products
    of two activations or through a state from a step before. Written op by op, that mixing does
    not show which axis the heads are. It lies between weights of the module that encloses it, of
    which `find_roles` denied one. Attention with a softmax shows its heads, and is left as it is.

    Source: Megatron-LM, core/ssm/mamba_mixer.py (projections by columns and rows, all between by
    heads of the rank); vLLM, models/minimax_text_01.py, likewise.
    """
    forward = [op for op in views if op.phase == Phase.FORWARD]
    asked = {
        modules[op.module].rpartition(".")[0] for op in forward if op.weight is not None
        and op.weight not in roles and op.kind == OpKind.MATMUL
    }  # fmt: skip
    inside = [op for op in forward if modules[op.module] in asked]
    shows = {op.module for op in inside if op.kind in (OpKind.ATTENTION, OpKind.SOFTMAX)}
    homes = tuple(
        {f"{modules[op.module]}." for op in inside if op.module not in shows and _mixes_tokens(op)}
    )
    return frozenset(
        number for number, path in enumerate(modules) if homes and f"{path}.".startswith(homes)
    )


def _mixes_tokens(op: OpView) -> bool:
    """Whether an op multiplies activations, works on a state, or filters along a sequence."""
    is_product = op.kind == OpKind.MATMUL and not op.parameters and len(op.inputs) > 1
    is_filter = op.kind == OpKind.CONV and op.dims[_GROUPS] > 1 and op.dims[_HEIGHT] == 1
    has_state = bool(op.caches) and op.kind != OpKind.ATTENTION
    return is_product or is_filter or has_state or op.kind == OpKind.SCAN


class _Follow:
    """Data being followed through the forward ops, under a set of weights that stay whole."""

    def __init__(
        self, degree: float, denied: frozenset[int], words: Mapping[int, float] | None,
        by_heads: frozenset[int],
    ) -> None:  # fmt: skip
        self.degree = degree
        self.denied = denied
        self.by_heads = by_heads
        self.splits_words = words is not None
        self.words = words or {}
        self.roles: dict[int, Role] = {}
        self.makers: dict[int, frozenset[int]] = {}
        self.features: dict[int, float] = {}
        self.closed: set[int] = set()
        self.conflicts: set[int] = set()
        self.biases: set[int] = set()
        #: Columns that a norm of all heads together stands behind, and no attention as yet.
        self.summed: set[int] = set()

    def step(self, op: OpView) -> None:
        """Follow data through one op."""
        makers = frozenset[int]().union(*(self.makers.get(s, frozenset()) for s, _ in op.inputs))
        if makers and op.module in self.by_heads and not _is_projection(op):
            self.makers.update(dict.fromkeys(op.outputs, makers))
        elif op.weight is not None:
            self._meet_weight(op, op.weight, makers)
        elif op.kind == OpKind.EMBEDDING and op.parameters:
            self._meet_table(op)
        elif op.kind == OpKind.INDEX and op.parameters:
            self.biases.update(op.outputs)
        elif makers and self._passes(op, makers):
            self.makers.update(dict.fromkeys(op.outputs, makers))
            if op.kind == OpKind.CROSS_ENTROPY:
                self.closed |= makers
            if op.kind == OpKind.ATTENTION:
                self.summed -= makers
        elif makers and self._sums(op, makers):
            self.summed |= makers
            self.makers.update(dict.fromkeys(normed(op), makers))
        elif makers:
            self.conflicts |= makers

    def unclosed(self) -> set[int]:
        """Columns whose split output never met a row or the loss, or attention after a norm."""
        columns = {w for w, role in self.roles.items() if role == Role.COLUMN}
        return (columns - self.closed) | self.summed

    def _meet_weight(self, op: OpView, weight: int, makers: frozenset[int]) -> None:
        outputs = op.dims[op.weight_dims[1]] if op.weight_dims else 0.0
        is_grouped = op.kind == OpKind.CONV and op.dims[_GROUPS] > 1
        if makers and (is_grouped or self.roles.get(weight) == Role.COLUMN):
            self.conflicts |= makers
        elif makers:
            self.roles[weight] = Role.ROW
            self.closed |= makers
        elif not is_grouped and weight not in self.denied and outputs >= 2 * self.degree:
            self.roles[weight] = Role.COLUMN
            self.features[weight] = outputs
            self.makers.update(dict.fromkeys(op.outputs, frozenset({weight})))

    def _meet_table(self, op: OpView) -> None:
        table = op.parameters[0][0]
        if self.words.get(table, 0.0) >= _MIN_SPLIT_ROWS and table not in self.denied:
            self.roles[table] = Role.VOCABULARY
            self.closed.add(table)

    def _passes(self, op: OpView, makers: frozenset[int]) -> bool:
        if op.is_loss and not self.splits_words:
            return False
        split = max(n for s, n in op.inputs if s in self.makers)
        whole = max((n for s, n in op.inputs if not self._follows(op, s)), default=0.0)
        if whole >= split / 2:
            return False
        features = FACTS[op.kind].features
        if features == "across" and not op.is_loss:
            return all(op.dims[1] != self.features[maker] for maker in makers)
        return features != "all"

    def _sums(self, op: OpView, makers: frozenset[int]) -> bool:
        """Whether ranks can each sum their features of a row, as a norm of queries or keys does."""
        features = {self.features.get(maker, 0.0) for maker in makers}
        return sums_features(op, features) and all(self._follows(op, s) for s, _ in op.inputs)

    def _follows(self, op: OpView, storage: int) -> bool:
        """Whether an input is split as the data is: made so, a cache, or a bias."""
        return storage in self.makers or storage in op.caches or storage in self.biases


def sums_features(op: OpView, widths: set[float]) -> bool:
    """Whether an op adds up all features of rows that are so wide.

    A norm of all heads together stands between the projection of queries or keys and attention.
    Ranks that share heads add up the squares of theirs, one number a row.

    Source: vLLM, models/minimax_m2.py (``MiniMaxText01RMSNormTP``).
    """
    is_across = op.kind in (OpKind.NORM, OpKind.REDUCE) and not op.is_loss
    return is_across and op.dims[1] in widths


def normed(op: OpView) -> tuple[int, ...]:
    """What such an op leaves split: a norm its result; what was only summed is whole again."""
    return op.outputs if op.kind == OpKind.NORM else ()


def _is_projection(op: OpView) -> bool:
    """Whether an op multiplies by a whole weight, which a filter of each feature is not."""
    is_grouped = op.kind == OpKind.CONV and op.dims[_GROUPS] > 1
    return op.weight is not None and not is_grouped


def evaluate(coefficients: FloatArray) -> FloatArray:
    """Polynomials at the probe."""
    return np.asarray(coefficients @ monomials(*_PROBE)[0])
