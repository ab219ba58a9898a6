"""Shares of weights and gradients on the host: what each gather and each sum move over its link.

A rank copies its share up before ranks gather it, for forward and for backward; recomputed blocks
use what backward gathered. Its share of summed gradients goes down.

Sources:
    PyTorch 2.13, distributed/fsdp/_fully_shard: ``_fsdp_param.py`` (the stored share is copied up,
    then cast) and ``_fsdp_collectives.py`` (``foreach_all_gather`` copies on a stream of its own;
    gradients go down in the format of the weights).
    deepspeedai/DeepSpeed, runtime/zero/stage3.py, ``partition_grads``: a summed share goes down and
    comes up again, to be added to or measured; once a step it goes down in FP32. Both read
    2026-11-28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Device, Link
from paceline.columns import take_rows
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.values import dataclass

#: Of a gradient as an optimizer on the host reads it.
_WIDE_BYTES = 4.0
#: How kinds of links begin that are the host's own.
_BUS = "pcie"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostLinks:
    """Links of devices to their hosts, one row per candidate.

    Attributes:
        bytes_per_s: Of each direction, as copies reach it; NaN where that is not known.
        joins_devices: Whether devices reach each other over the same link.
    """

    bytes_per_s: FloatArray
    joins_devices: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, devices: Sequence[Device], links: Sequence[Link | None], efficiency_frac: float
    ) -> HostLinks:
        """Of devices, and of what joins them to each other."""
        peaks = [device.pcie_bytes_per_s or np.nan for device in devices]
        joins = [link is not None and link.kind.startswith(_BUS) for link in links]
        return cls(
            bytes_per_s=np.array(peaks, dtype=np.float64) * efficiency_frac,
            joins_devices=np.array(joins, dtype=np.bool_),
        )

    def take(self, rows: IntArray) -> HostLinks:
        """Some of them, in this order."""
        return take_rows(self, rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostTraffic:
    """Seconds that shares of all weights take on each direction of a rank's host link.

    Attributes:
        weights_up_s: Once, as they are stored.
        gradients_up_s: Whenever gradients are summed.
        gradients_down_s: Likewise.
        joins_devices: Whether ranks reach each other over the same link.
    """

    weights_up_s: FloatArray
    gradients_up_s: FloatArray
    gradients_down_s: FloatArray
    joins_devices: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        lowered: LoweredPass,
        links: HostLinks,
        *,
        num_ranks: npt.ArrayLike,
        num_sums: npt.ArrayLike,
        returns_gradients: bool,
    ) -> HostTraffic:
        """What ranks that split a pass move; a rank that splits nothing moves nothing.

        Args:
            lowered: The pass, as one rank would run it alone.
            links: Of the ranks.
            num_ranks: That share the weights.
            num_sums: How often gradients are summed in a step.
            returns_gradients: Whether they come up again, and go down in FP32 once a step.
        """
        ranks = np.asarray(num_ranks, dtype=np.float64)
        each_s = np.where(ranks > 1, 1.0 / (ranks * links.bytes_per_s), 0.0)
        wide_bytes = _WIDE_BYTES * lowered.num_trainable_parameters / np.asarray(num_sums)
        down_bytes = lowered.gradient_bytes + wide_bytes * returns_gradients
        return cls(
            weights_up_s=lowered.parameter_bytes * each_s,
            gradients_up_s=lowered.gradient_bytes * returns_gradients * each_s,
            gradients_down_s=down_bytes * each_s,
            joins_devices=links.joins_devices,
        )

    @property
    def every_s(self) -> FloatArray:
        """All of a pass forward and backward, one after the other."""
        return 2.0 * self.weights_up_s + self.gradients_up_s + self.gradients_down_s

    def forward_s(self, gather_s: FloatArray) -> FloatArray:
        """How long a gather and the copies for the next one take, side by side where they can."""
        return self._beside(gather_s, self.weights_up_s)

    def backward_s(self, sent_s: FloatArray) -> FloatArray:
        """The same of a gather and a sum, whose gradients go to the host meanwhile."""
        up_s = self.weights_up_s + self.gradients_up_s
        return self._beside(sent_s, np.maximum(up_s, self.gradients_down_s))

    def per_block(self, num_blocks: float) -> HostTraffic:
        """Of one of so many equal blocks."""
        names = ("weights_up_s", "gradients_up_s", "gradients_down_s")
        return replace(self, **{name: getattr(self, name) / num_blocks for name in names})

    def _beside(self, sent_s: FloatArray, copied_s: FloatArray) -> FloatArray:
        on_one = sent_s + copied_s
        return np.where(self.joins_devices, on_one, np.maximum(sent_s, copied_s))
