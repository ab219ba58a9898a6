"""Which blocks a model has, and to which of them its ops belong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from paceline.model.graph.graph import Graph, IntArray, Phase
from paceline.patterns import pattern

#: A repeated child of a container: the path up to its first number (``layers.7``, ``layer1.0``).
_BLOCK = pattern(r"^(.*?(?:^|[._])\d+)(?:\.|$)")


def block_names(graph: Graph) -> tuple[str, ...]:
    """Blocks of a model in the order data flows: numbered children, and what lies between."""
    return flow_of_blocks(graph.modules, graph.ops.module[graph.ops.phase == Phase.FORWARD])


def flow_of_blocks(modules: Sequence[str], op_module: IntArray) -> tuple[str, ...]:
    """Blocks that ops belong to, each where it comes first; ``op_module`` is each op's module."""
    names, block = _blocks_in(tuple(modules))
    first = np.full(len(names), len(op_module))
    np.minimum.at(first, block[op_module], np.arange(len(op_module)))
    used = np.flatnonzero(first < len(op_module))
    flow = (names[number] for number in used[np.argsort(first[used])].tolist())
    return tuple(name for name in flow if name) or ("",)


@lru_cache(maxsize=8)
def _blocks_in(modules: tuple[str, ...]) -> tuple[tuple[str, ...], IntArray]:
    """Blocks that modules lie in, and that of each; programs of a model share its modules."""
    number: dict[str, int] = {}
    block = [number.setdefault(_block_key(path), len(number)) for path in modules]
    return tuple(number), np.array(block, dtype=np.int64)


def blocks_of_ops(modules: Sequence[str], op_module: IntArray, names: Sequence[str]) -> IntArray:
    """Block of each op; one outside all blocks belongs to the block of the op before it."""
    own = own_blocks(modules, op_module, names)
    known = np.maximum.accumulate(np.where(own >= 0, np.arange(len(own)), -1))
    first = int(np.argmax(own >= 0)) if (own >= 0).any() else 0
    return np.asarray(own[np.where(known >= 0, known, first)].clip(0))


def own_blocks(modules: Sequence[str], op_module: IntArray, names: Sequence[str]) -> IntArray:
    """The block that each op lies in; -1 outside all."""
    return np.asarray(_blocks_of_modules(tuple(modules), tuple(names))[op_module])


@lru_cache(maxsize=8)
def _blocks_of_modules(modules: tuple[str, ...], names: tuple[str, ...]) -> IntArray:
    """Of each module; a model is lowered in many ways that share its modules."""
    number = {name: index for index, name in enumerate(names)}
    found, block = _blocks_in(modules)
    return np.array([number.get(name, -1) for name in found], dtype=np.int64)[block]


def is_numbered(name: str) -> bool:
    """Whether a block is a repeated child of a container.

    >>> is_numbered("model.layers.7"), is_numbered("lm_head")
    (True, False)
    """
    return repeated_child(name) is not None


def layers_of(names: Sequence[str]) -> int:
    """How many blocks are repeated children of a container; all of a model that repeats none.

    >>> layers_of(["embedding", "layers.0", "layers.1", "head"]), layers_of(["rnn", "head"])
    (2, 2)
    """
    return sum(is_numbered(name) for name in names) or len(names)


@cache
def repeated_child(path: str) -> str | None:
    """The repeated child of a container that a module is, or lies in; None outside all.

    >>> repeated_child("model.layers.7.mlp.0"), repeated_child("lm_head")
    ('model.layers.7', None)
    """
    match = _BLOCK.match(path)
    return match.group(1) if match else None


def _block_key(path: str) -> str:
    return repeated_child(path) or path
