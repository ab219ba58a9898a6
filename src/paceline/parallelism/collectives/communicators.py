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

from paceline.catalog.entities import Link

#: Of a connection: what it receives into, and what it sends from, in pages of 2 MiB.
_RECEIVED_BYTES = 10 * 2**20
_SENT_BYTES = 2 * 2**20
#: What one ring takes of a link, and channels that a communicator has at most.
_RING_BYTES_PER_S = 25e9
_MOST_CHANNELS = 24
#: Links whose buffers lie in the memory of the host.
_BY_HOST = ("pcie-host", "sockets", "ethernet")


def communicator_bytes(num_ranks: int, link: Link | None) -> float:
    """Bytes that one rank holds on its device for a communicator of so many.

    Args:
        num_ranks: Ranks that it joins.
        link: Between devices of a machine; None where there is none.

    >>> communicator_bytes(1, None)
    0.0
    """
    if num_ranks < 2 or link is None or link.kind in _BY_HOST:
        return 0.0
    channels = min(2 * max(int(link.bytes_per_s / _RING_BYTES_PER_S), 1), _MOST_CHANNELS)
    neighbours = min(num_ranks - 1, 2)
    return float(channels * neighbours * (_RECEIVED_BYTES + _SENT_BYTES))
