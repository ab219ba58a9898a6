"""Stages of a served model: layers one after the other, and batches that follow one another.

As many batches as stages are in flight, so that each stage works on one of them. A token passes all
stages, and what layers hand on is sent from one to the next.

Source: Agrawal et al., "Sarathi-Serve", OSDI 2024, section 3.2 (batches of a pipeline); vLLM,
``get_pp_indices`` (layers of a stage), read 2026-11-28.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.block_names import block_names, layers_of
from paceline.model.graph.graph import FloatArray, Graph, IntArray, OpKind, monomials
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, send_recv_s
from paceline.prediction.prediction import Points


def fullest_frac(graph: Graph, num_stages: int) -> float:
    """Of all layers, those of the stage that has most.

    Raises:
        InvalidInputError: More stages than layers.
    """
    layers = layers_of(block_names(graph))
    if num_stages > layers:
        raise InvalidInputError(
            f"{num_stages} pipeline stages are more than the model's {layers} layers",
            hint=f"use at most {layers} stages",
        )
    return math.ceil(layers / num_stages) / layers


def handed_elements(graph: Graph, points: Points) -> FloatArray:
    """Elements that a layer hands to the next: as many as are looked up for the first, (P,).

    Raises:
        InvalidInputError: Nothing is looked up.
    """
    looked_up = np.flatnonzero(graph.ops.kind == OpKind.EMBEDDING)
    if not len(looked_up):
        raise InvalidInputError(
            f"{graph.name} looks up no words, and what its stages send is not known",
            hint="share the model by `tp`",
        )
    first = graph.ops.output_tensor[graph.ops.output_start[looked_up[0]]]
    return np.asarray(
        monomials(points.batch, points.seq) @ graph.storages.elements[graph.tensors.storage[first]]
    )


def hops_s(
    message_bytes: FloatArray, num_stages: int, *, stride: IntArray, per_domain: IntArray,
    device_link: LinkTable, node_link: LinkTable, senders: int,
) -> FloatArray:  # fmt: skip
    """Seconds in which a batch is handed from stage to stage, all of them together, (P,).

    Args:
        message_bytes: What layers hand on.
        num_stages: One fewer messages than these.
        stride: Ranks from a stage to the next.
        per_domain: Devices that the link between devices joins.
        device_link: Inside a domain.
        node_link: Between domains.
        senders: Ranks that share layers, each of which sends its part.
    """
    crosses = num_stages * stride > per_domain
    pair = RankGroup.of(
        2.0, np.where(crosses, 1.0, 2.0), device_link, node_link,
        node_share_frac=np.where(crosses, 1.0 / np.minimum(stride, per_domain), 1.0),
    )  # fmt: skip
    return np.asarray((num_stages - 1.0) * send_recv_s(message_bytes / senders, pair))
