"""Device memory that NCCL holds for one communicator, beside what a framework allocates.

Every channel has a connection to each neighbour of its ring and its tree: one neighbour where there
are two ranks, two where there are more. For each connection the receiver holds the buffers of
three protocols, and the sender a page.

Source:
    NVIDIA/nccl, src/init.cc (``computeBuffSizes``: Simple 4 MiB, LL128 120 elements of each of 640
    threads in 8 steps, LL 8 lines of each of 512 threads in 8 steps) and src/transport/p2p.cc
    (``p2pRecvSetup``, ``p2pSendSetup``); its issue 1685 counts allocations of 10 and of 2 MiB on
    H100. A ring for each NVLink of 25 GB/s, twice (issue 1041):
    logs show 12 channels on V100, 24 on A100 and 16 to 24 on H100. Read 2026-11-28. Buffers of
    NVLS and of a network are not counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Link
from paceline.model.graph.graph import FloatArray

#: Of a connection: what it receives into, and what it sends from, in pages of 2 MiB.
_RECEIVED_BYTES = 10 * 2**20
_SENT_BYTES = 2 * 2**20
#: What one ring takes of a link, and channels that a communicator has at most.
_RING_BYTES_PER_S = 25e9
_MOST_CHANNELS = 24
#: Links over which GPUs reach one another's memory, where NCCL and AMD's fork of it talk. Buffers
#: of cards that talk through their host lie there; other makers have collectives of their own.
_DIRECT = ("nvlink", "infinity-fabric", "pcie")


def num_channels(link: Link | None) -> int:
    """Channels of a communicator whose buffers lie on the devices that a link joins.

    Args:
        link: Between devices of a machine; None where there is none.

    >>> num_channels(None)
    0
    """
    if link is None or link.kind not in _DIRECT:
        return 0
    return min(2 * max(int(link.bytes_per_s / _RING_BYTES_PER_S), 1), _MOST_CHANNELS)


def communicator_bytes(num_ranks: npt.ArrayLike, channels: npt.ArrayLike) -> FloatArray:
    """Bytes that one rank holds on its device for a communicator of so many; nothing alone.

    Args:
        num_ranks: Ranks that it joins.
        channels: Of the link between them.

    >>> communicator_bytes([1, 2, 8], 24) / 2**20
    array([  0., 288., 576.])
    """
    neighbours = np.clip(np.asarray(num_ranks) - 1.0, 0.0, 2.0)
    connections: FloatArray = neighbours * np.asarray(channels, dtype=np.float64)
    return connections * (_RECEIVED_BYTES + _SENT_BYTES)
