"""What software does on many ranks beside the strategy: its buckets, cuts, overlaps and dispatch.

Rows and their sources are in ``data/frameworks.toml``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.errors import UnknownNameError
from paceline.model.graph.graph import FloatArray
from paceline.shipped import shipped_toml
from paceline.values import dataclass

#: What others are like where they say nothing.
_USUAL = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProfile:
    """How software runs a strategy.

    Attributes:
        overlaps_gradients: Whether gradients are reduced during backward.
        gathers_ahead: Whether ranks that shard an optimizer gather what it updated during the next
            forward pass, as Megatron-LM's distributed optimizer does.
        bucket_bytes: Gradients that are reduced together.
        bucket_parameters: In place of bytes: parameters whose gradients are; None for bytes.
        bucket_parameters_per_rank: At least so many for each rank that shards.
        cut: Whether stages get equal cost or equal numbers of layers.
        bare_stages: Interleaved stages that may hold the embedding or the loss alone.
        overlaps_hops: Whether what interleaved stages send travels while they compute, as in
            PyTorch's schedules and in Megatron-LM since 2023 (``overlap_p2p_comm``).
        hop_wait_s: What both ends of a message between stages spend beside its time on the wire,
            where the host waits for it before it goes on.
        keeps_messages: Whether a stage has a buffer for what it receives of every microbatch of a
            step, and keeps what it sent until its gradient has come, as PyTorch's stages do.
        tokens_once: Whether a token is sent once to each node and rank that wants it, as DeepEP
            does, instead of once to each of its experts.
        whole_experts: Whether tensor ranks are expert ranks too, with experts of their own, instead
            of sharing each expert (Megatron-LM with ``expert-tensor-parallel-size 1``).
        hides_exchange: Whether tokens travel while another microbatch is computed (Megatron-LM's
            ``overlap-moe-expert-parallel-comm``).
        keeps_gradients: Whether gradients lie in buffers that are there from the start of a step,
            and are added there by the products that make them.
        buckets: Whether replicas have buckets for all gradients from the start: ``beside`` the
            gradients, or gradients are ``views`` of them, as soon as they are reduced.
        wraps_each: Whether ranks that split weights gather what lies beside repeated blocks module
            by module; else all of it, from the first forward to the last backward.
        shards_experts: Whether replicas of expert ranks shard experts as they shard the rest; else
            each keeps those of its rank whole.
        splits_words: Whether tensor ranks split the vocabulary of the output head and the loss;
            else both are whole on every rank.
        launches_each: Whether modules launch kernels one by one, also those that are fused.
        live_parameters: Of gathered weights, how many stay so where backward soon needs them again.
        loops_experts: Whether the host launches experts one after the other, and waits to learn how
            many tokens each got.
        returns_gradients: Whether a share of gradients that went to the host comes back whenever it
            is summed, and goes down in FP32 once a step.
        flat_states: Whether a rank has one tensor for each optimizer state of all its weights.
        starts_whole: Whether a rank has the whole model on its device before it keeps its share.
        host: Whose kernels run, and whose host dispatches them.
    """

    overlaps_gradients: bool
    gathers_ahead: bool
    bucket_bytes: float
    bucket_parameters: float | None = None
    bucket_parameters_per_rank: float = 0.0
    cut: Literal["cost", "layers"]
    bare_stages: int
    overlaps_hops: bool
    hop_wait_s: float
    keeps_messages: bool
    tokens_once: bool
    whole_experts: bool
    hides_exchange: bool
    keeps_gradients: bool
    buckets: Literal["none", "beside", "views"]
    wraps_each: bool
    shards_experts: bool
    splits_words: bool
    launches_each: bool
    loops_experts: bool
    live_parameters: float = 0.0
    returns_gradients: bool = False
    flat_states: bool = False
    starts_whole: bool = False
    host: str = _USUAL

    @property
    def keeps_buckets(self) -> bool:
        """Whether replicas have buckets for all gradients; of other hosts nothing is known."""
        return self.buckets != "none" and self.host == _USUAL

    def fills_buckets(self, *, accumulates: bool) -> bool:
        """Whether those buckets are all that there is of the gradients."""
        return self.keeps_buckets and self.buckets == "views" and not accumulates

    def bucket_size_bytes(
        self, num_shards: npt.ArrayLike, parameter_bytes: npt.ArrayLike
    ) -> FloatArray:
        """Bytes of gradients that are reduced together, for each number of ranks that shard.

        ``parameter_bytes``: of a gradient as it is sent, likewise or one for all.
        """
        if self.bucket_parameters is None:
            return np.full(np.shape(num_shards), self.bucket_bytes)
        by_rank = self.bucket_parameters_per_rank * np.asarray(num_shards, dtype=np.float64)
        growing = np.maximum(self.bucket_parameters, by_rank)
        return np.asarray(growing * np.maximum(parameter_bytes, 1.0))

    def with_optimizer_of(self, other: TrainingProfile) -> TrainingProfile:
        """The same with the sharded optimizer of another: its buckets, and when it gathers."""
        return replace(
            self,
            gathers_ahead=other.gathers_ahead,
            keeps_gradients=other.keeps_gradients,
            buckets=other.buckets,
            bucket_bytes=other.bucket_bytes,
            bucket_parameters=other.bucket_parameters,
            bucket_parameters_per_rank=other.bucket_parameters_per_rank,
        )


@cache
def find_training_profile(name: str = _USUAL) -> TrainingProfile:
    """The profile of a framework; of PyTorch by default.

    Raises:
        UnknownNameError: There is none of that name.
    """
    tables = shipped_toml("parallelism", "frameworks.toml")
    if name not in tables:
        raise UnknownNameError.from_name("training framework", name, sorted(tables))
    facts = tables[_USUAL] | tables[name]
    return TrainingProfile(**{key: value for key, value in facts.items() if key != "source"})
