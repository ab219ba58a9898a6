"""Ranks that share every block: the tensor, context and expert degrees that a search tries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.parallelism.legality import MIN_SHARED_BYTES_PER_S
from paceline.parallelism.schedule.blocks import TensorGroup
from paceline.parallelism.schedule.table import ClusterLinks
from paceline.parallelism.split.sequence import check_sequence, shared_heads
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.split.tables import check_shared

#: Most ranks that share a sequence, as in the training of Llama 3 405B.
_MAX_CONTEXT_DEGREE = 16


def cuts_weights(configuration: Configuration) -> bool:
    """Whether some trainer lets tensor ranks cut the weights.

    Frozen weights of few bits are stored with a scale for each block of their own order. Libraries
    shard them whole, as FSDP does, or place layers on devices; none cuts their matrices. Source:
    bitsandbytes, "FSDP-QLoRA"; torchao, ``NF4Tensor`` (recalled 2026-11-27).
    """
    return configuration.frozen_weights == "same"


def tensor_groups(
    fabric: ClusterLinks, seq: float, max_tensor_degree: int | None
) -> Iterator[TensorGroup]:
    """Powers of two inside a node, with sequence parallel where the sequence divides."""
    for degree in _powers(max_tensor_degree or fabric.even_domain):
        yield TensorGroup(
            shape=SplitShape(tensor=degree, sequence_parallel=degree > 1 and seq % degree == 0),
            ranks_per_node=fabric.devices_per_domain,
            device_link=fabric.device_link,
            node_link=fabric.node_link,
        )


def with_context(
    graph: Graph, group: TensorGroup, fabric: ClusterLinks, seq: float, part_tokens: int
) -> Iterator[TensorGroup]:
    """The group with every context degree above one that model, sequence and links allow."""
    tensor, per_node = group.shape.tensor, fabric.even_domain
    limit = min(seq / part_tokens, _MAX_CONTEXT_DEGREE)
    if not _is_fast(fabric):
        limit = min(limit, per_node // tensor)
    if limit < 2:
        return
    try:
        check_sequence(graph)
    except InvalidInputError:
        return
    most = max(_powers(max(math.gcd(shared_heads(graph), per_node) // tensor, 1)))
    for degree in _powers(int(limit)):
        for ulysses in dict.fromkeys((1, min(degree, most))):
            shape = replace(group.shape, ring=degree // ulysses, ulysses=ulysses)
            if degree > 1 and seq % shape.num_pieces == 0:
                yield replace(group, shape=shape)


def _is_fast(fabric: ClusterLinks) -> bool:
    """Whether the network carries what ranks of one sequence exchange."""
    share = float(fabric.node_link.bytes_per_s[0]) / fabric.devices_per_node
    return share >= MIN_SHARED_BYTES_PER_S


def expert_degrees(graph: Graph, limit: int) -> list[int]:
    """Degrees above one that divide the model's experts, or share its tables, if it has any."""
    degrees = []
    for degree in _powers(limit):
        if degree > 1:
            try:
                check_shared(graph, degree)
            except InvalidInputError:
                break
            degrees.append(degree)
    return degrees


def with_experts(
    groups: Sequence[TensorGroup], degrees: Sequence[int], reach: int
) -> Iterator[TensorGroup]:
    """Each group with every expert degree that so many devices have room for."""
    for group in groups:
        room = reach // group.shape.num_sharing
        yield from (
            replace(group, shape=replace(group.shape, experts=degree))
            for degree in degrees
            if degree <= room
        )


def _powers(limit: int) -> Iterator[int]:
    degree = 1
    while degree <= limit:
        yield degree
        degree *= 2
