"""A denoiser of two layers by hand: joint attention over picture and text, and text to look at."""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.dtypes import DType
from paceline.model.graph.graph import (
    EXPONENTS,
    NUM_DIMS,
    NUM_MONOMIALS,
    Graph,
    OpKind,
    OpTable,
    Owner,
    Phase,
    StorageTable,
    TensorTable,
)
from paceline.model.ops.registry import DIM_NAMES
from paceline.model.ops.shapes import op_flop

PICTURE, WIDTH, HEADS, LAYERS, ITEMS = 4096, 1024, 16, 2, 2
#: Tokens beside the picture's in attention, and those that it looks at.
TEXT, CAPTION = 128, 300
_EACH = EXPONENTS.index((1, 0))


class _Building:
    """Ops and storages as they come; what follows the batch is ``ITEMS`` times it."""

    def __init__(self) -> None:
        self.stores: list[tuple[float, Owner]] = []
        self.ops: list[tuple[OpKind, dict[int, tuple[float, int]], list[int], int]] = []

    def store(self, elements: float, owner: Owner = Owner.ACTIVATION) -> int:
        self.stores.append((elements, owner))
        return len(self.stores) - 1

    def op(
        self, kind: OpKind, dims: dict[int, tuple[float, int]], reads: list[int], made: float
    ) -> int:
        self.ops.append((kind, dims, reads, self.store(made)))
        return len(self.stores) - 1

    def product(self, source: int, tokens: float, outputs: int, inputs: int) -> int:
        weight = self.store(outputs * inputs, Owner.PARAMETER)
        dims = {0: (1, 0), 1: (ITEMS * tokens, _EACH), 2: (outputs, 0), 3: (inputs, 0)}
        return self.op(OpKind.MATMUL, dims, [source, weight], ITEMS * tokens * outputs)

    def rows(self, kind: OpKind, sources: list[int], tokens: float, width: int = WIDTH) -> int:
        elements = ITEMS * tokens * width
        dims = {0: (elements, _EACH), 1: (1, 0), 2: (len(sources), 0)}
        return self.op(kind, dims, sources, elements)

    def attention(self, sources: list[int], queries: float, keys: float) -> int:
        sizes = (ITEMS, HEADS, HEADS, queries, keys, WIDTH / HEADS)
        dims = {n: (size, _EACH if n == 0 else 0) for n, size in enumerate(sizes)}
        return self.op(OpKind.ATTENTION, dims, sources, ITEMS * queries * WIDTH)

    def graph(self) -> Graph:
        """The pass."""
        num_ops, num_stores = len(self.ops), len(self.stores)
        dims = np.zeros((num_ops, NUM_DIMS, NUM_MONOMIALS))
        for row, (_, sizes, _, _) in enumerate(self.ops):
            for column, (size, monomial) in sizes.items():
                dims[row, column, monomial] = size
        elements = np.zeros((num_stores, NUM_MONOMIALS))
        owner = np.array([int(one) for _, one in self.stores], dtype=np.int8)
        size = np.array([one for one, _ in self.stores])
        elements[np.arange(num_stores), np.where(owner == Owner.PARAMETER, 0, _EACH)] = size
        kind = np.array([int(one) for one, *_ in self.ops], dtype=np.int16)
        reads = [sources for _, _, sources, _ in self.ops]
        starts = np.cumsum([0, *map(len, reads)]).astype(np.int32)
        dtype = np.full(num_stores, int(DType.BF16), dtype=np.int8)
        return Graph(
            name="small/forward",
            variables=("batch", ""),
            modules=("",),
            ops=OpTable(
                kind=kind,
                variant=np.zeros(num_ops, dtype=np.int16),
                phase=np.full(num_ops, int(Phase.FORWARD), dtype=np.int8),
                module=np.zeros(num_ops, dtype=np.int32),
                flop=op_flop(kind, dims),
                dims=dims,
                input_start=starts,
                input_tensor=np.array([s for one in reads for s in one], dtype=np.int32),
                output_start=np.arange(num_ops + 1, dtype=np.int32),
                output_tensor=np.array([made for *_, made in self.ops], dtype=np.int32),
            ),
            tensors=TensorTable(
                storage=np.arange(num_stores, dtype=np.int32), elements=elements, dtype=dtype
            ),
            storages=StorageTable(
                elements=elements,
                dtype=dtype,
                owner=owner,
                birth=np.full(num_stores, -1, dtype=np.int32),
                death=np.full(num_stores, num_ops, dtype=np.int32),
                is_saved=np.zeros(num_stores, dtype=np.bool_),
                is_trainable=np.zeros(num_stores, dtype=np.bool_),
                is_wide=np.zeros(num_stores, dtype=np.bool_),
            ),
        )


@cache
def denoiser(text: int = TEXT) -> Graph:
    """The step of a denoiser with so many tokens of text in its attention."""
    new = _Building()
    latents, words, caption, time = (
        new.store(ITEMS * tokens * WIDTH, Owner.INPUT) for tokens in (PICTURE, text, CAPTION, 1)
    )
    picture, beside = new.product(latents, PICTURE, WIDTH, WIDTH), words
    for _ in range(LAYERS):
        shift = new.product(time, 1, WIDTH, WIDTH)
        parts = [new.product(picture, PICTURE, 3 * WIDTH, WIDTH)]
        if text:
            beside = new.product(beside, text, WIDTH, WIDTH)
            parts.append(new.product(beside, text, 3 * WIDTH, WIDTH))
        joint = new.rows(OpKind.COPY, parts, PICTURE + text, 3 * WIDTH)
        seen = new.attention([joint], PICTURE + text, PICTURE + text)
        own = new.rows(OpKind.COPY, [seen], PICTURE)
        picture = new.rows(
            OpKind.ELEMENTWISE, [new.product(own, PICTURE, WIDTH, WIDTH), shift], PICTURE
        )
        looked = new.product(caption, CAPTION, 2 * WIDTH, WIDTH)
        picture = new.attention([picture, looked], PICTURE, CAPTION)
        hidden = new.rows(
            OpKind.ELEMENTWISE,
            [new.product(picture, PICTURE, 4 * WIDTH, WIDTH)],
            PICTURE,
            4 * WIDTH,
        )
        picture = new.product(hidden, PICTURE, WIDTH, 4 * WIDTH)
    new.product(picture, PICTURE, 64, WIDTH)
    return new.graph()


#: Columns of attention, for tests that look at them.
Q_HEADS, Q_LEN, KV_LEN = (
    DIM_NAMES[OpKind.ATTENTION].index(name) for name in ("q_heads", "q_len", "kv_len")
)
