"""How ranks share a model and its items, as one small value: what decides a rank's graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import IntArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup
from paceline.parallelism.split.calls import AXES, SplitAxis
from paceline.parallelism.strategy.strategy import Strategy
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitShape:
    """How the ranks that wait for each other in every pass share a model and its items.

    Ranks are laid out with ``tensor`` innermost, then ``ulysses``, ``ring``, ``experts`` and
    ``guidance``.

    Attributes:
        tensor: Ranks that share the widths and heads of every layer.
        sequence_parallel: Whether those share what lies between their pairs along the sequence.
        ring: Ranks that have a part of each sequence, among which keys and values go round.
        gathers_keys: Whether those gather all keys and values before attention instead.
        ulysses: Ranks that have a part of each sequence and, in attention, some heads of all of it.
        experts: Ranks, or groups of tensor ranks, with items of their own that share experts.
        guidance: 2 where the guided and the free half of a batch run apart.
        whole_experts: Whether each tensor rank keeps some experts whole instead of a part of each.
        gathers_tokens: Whether experts get the tokens of all ranks, as in engines, instead of
            those that are sent to them.
        copies_heads: Whether tensor ranks beyond the heads of keys and values keep copies of them.
        gathers_words: Whether each tensor rank has a part of the vocabulary at the end, and logits
            are gathered.
        sums_layers_once: Whether what all experts of a layer made is added before ranks sum it.
        splits_words: Whether tensor ranks split the vocabulary of the output head and the loss.
    """

    tensor: int = 1
    sequence_parallel: bool = False
    ring: int = 1
    gathers_keys: bool = False
    ulysses: int = 1
    experts: int = 1
    guidance: int = 1
    whole_experts: bool = False
    gathers_tokens: bool = False
    copies_heads: bool = False
    gathers_words: bool = False
    sums_layers_once: bool = False
    splits_words: bool = True

    def __post_init__(self) -> None:
        degrees = (self.tensor, self.ring, self.ulysses, self.experts, self.guidance)
        if min(degrees) < 1:
            raise InvalidInputError(
                f"{min(degrees)} ranks cannot share a model", hint="give degrees of 1 and more"
            )

    @classmethod
    def of(
        cls, strategy: Strategy, *, whole_experts: bool = False, splits_words: bool = True
    ) -> SplitShape:
        """Ranks that share a model by a strategy.

        Args:
            strategy: Its `tp`, `cp`, `ep` and `cfg` axes.
            whole_experts: Whether tensor ranks are expert ranks too, with experts of their own; one
                tensor rank has them whole anyway.
            splits_words: Whether tensor ranks split the output head and the loss; one rank has
                them whole.
        """
        return cls(
            tensor=strategy.size("tp"),
            sequence_parallel=strategy.sequence_parallel,
            ring=strategy.size("cp") // strategy.ulysses,
            gathers_keys=strategy.gathers_keys,
            ulysses=strategy.ulysses,
            experts=strategy.size("ep"),
            guidance=strategy.size("cfg"),
            whole_experts=whole_experts and min(strategy.size("ep"), strategy.size("tp")) > 1,
            splits_words=splits_words or strategy.size("tp") == 1,
        )

    @classmethod
    def of_engine(
        cls, *, tensor: int = 1, replicas: int = 1, whole_experts: bool = False
    ) -> SplitShape:
        """Ranks of an inference engine.

        Args:
            tensor: Ranks that hold the same requests and share every layer.
            replicas: Groups of those with requests of their own that share experts.
            whole_experts: Whether a rank keeps some of the experts whole.

        Source: vLLM, "Expert Parallel Deployment" (docs.vllm.ai, read 2026-11-22): expert ranks
        are the tensor ranks of all replicas, attention is split over the tensor ranks and copied
        for the replicas; the default backend (``allgather_reducescatter``) gathers the tokens of
        all replicas before the experts and scatters their sums after them. vLLM, ``fused_moe``
        (tensor ranks of one replica hold the same tokens, and only sum what their experts made),
        ``ParallelLMHead`` and ``LogitsProcessor`` (vocabulary, logits).
        """
        return cls(
            tensor=tensor, experts=replicas, whole_experts=whole_experts, gathers_tokens=True,
            copies_heads=True, gathers_words=True, sums_layers_once=True,
        )  # fmt: skip

    @property
    def sequence(self) -> int:
        """Ranks that share the tokens of an item."""
        return self.ring * self.ulysses

    @property
    def num_pieces(self) -> int:
        """Into how many equal pieces each sequence is cut.

        Ranks of a ring take a first and a last piece each, so that causal work is equal; under
        sequence parallel tensor ranks cut theirs once more.
        """
        pieces = self.ulysses * (2 * self.ring if self.ring > 1 else 1)
        return pieces * (self.tensor if self.sequence_parallel else 1)

    @property
    def num_sharing(self) -> int:
        """Ranks that hold the same items."""
        return self.tensor * self.sequence * self.guidance

    @property
    def num_ranks(self) -> int:
        """Ranks that wait for each other."""
        return self.num_sharing * self.experts

    @property
    def expert_ranks(self) -> int:
        """Ranks among which the experts of a layer are dealt out whole."""
        return self.experts * (self.tensor if self.whole_experts else 1)

    def layout(self, axis: SplitAxis) -> tuple[int, int]:
        """Ranks of a group of an axis, and their distance.

        >>> SplitShape(tensor=4, ring=2).layout("ring")
        (2, 4)
        """
        is_dispatched = self.whole_experts and not self.gathers_tokens
        layouts: dict[SplitAxis, tuple[int, int]] = {
            "tensor": (self.tensor, 1),
            "ulysses": (self.ulysses, self.tensor),
            "ring": (self.ring, self.tensor * self.ulysses),
            "sequence": (self.sequence, self.tensor),
            "experts": (self.expert_ranks, 1)
            if is_dispatched
            else (self.experts, self.tensor * self.sequence),
            "items": (self.num_sharing, 1),
        }
        return layouts[axis]

    def groups(
        self,
        num_rows: int,
        ranks_per_node: int | IntArray,
        device_link: LinkTable,
        node_link: LinkTable,
    ) -> Mapping[SplitAxis, RankGroup]:
        """The ranks of every axis.

        Args:
            num_rows: Points or candidates.
            ranks_per_node: Ranks in one node, of all rows or of each.
            device_link: Inside a node; one row for all, or one for each.
            node_link: Between nodes, likewise.
        """
        device, node = (
            table if len(table) == num_rows else table.take(np.zeros(num_rows, dtype=np.int64))
            for table in (device_link, node_link)
        )
        return {
            axis: RankGroup.of(
                np.full(num_rows, float(degree)), np.maximum(ranks_per_node // stride, 1),
                device, node, node_share_frac=1.0 / np.minimum(stride, ranks_per_node),
            )
            for axis, (degree, stride) in ((axis, self.layout(axis)) for axis in AXES)
        }  # fmt: skip
