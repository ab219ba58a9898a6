"""The order of samples: a function of (seed, epoch, position), whoever reads.

Nothing is kept and nothing is drawn in advance: the sample at any position of any epoch is computed
alone, so that resuming costs nothing and any number of ranks and workers reads the same sequence.

Source of the permutation: Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002
(a Feistel network on the next power of two, walked until it falls inside).
"""

import hashlib
import struct
from collections import namedtuple

_ROUNDS = 6
_LOW_32 = 0xFFFFFFFF
#: Positions that are permuted at a time: a few milliseconds, and no call per batch.
_CHUNK = 1 << 14

#: An epoch: `count` samples, read in batches of `global_batch` over all ranks; `indices` where a
#: sampler of the user's says which samples, else None.
Epoch = namedtuple(
    "Epoch", ["count", "seed", "epoch", "is_shuffled", "global_batch", "drops_last", "indices"]
)

#: What one rank reads of a batch: sample indices; of how many of the batch they stand for (0 where
#: a sample is read again because the batch has fewer than there are ranks); the batch's size.
Share = namedtuple("Share", ["indices", "num_own", "batch"])


def permuted(positions, count, seed, epoch):
    """Samples that stand at positions of a shuffled epoch.

    Args:
        positions: 64-bit integers of 0 to `count` - 1, a tensor or a NumPy array.
        count: Samples of the epoch.
        seed: Of the run.
        epoch: Number of the epoch.

    >>> import numpy
    >>> sorted(permuted(numpy.arange(5), 5, seed=1, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    bits = max(2, (count - 1).bit_length())
    keys = _keys(seed, epoch)
    found = _shuffled_bits(positions, bits, keys)
    outside = found >= count
    while bool(outside.any()):
        found[outside] = _shuffled_bits(found[outside], bits, keys)
        outside = found >= count
    return found


def _keys(seed, epoch):
    digest = hashlib.blake2b(b"%d/%d" % (seed, epoch), digest_size=4 * _ROUNDS).digest()
    return struct.unpack("<%dI" % _ROUNDS, digest)


def _shuffled_bits(values, bits, keys):
    """A permutation of all numbers of so many bits; the halves change places each round."""
    low_bits, high_bits = bits - bits // 2, bits // 2
    high, low = values >> low_bits, values & ((1 << low_bits) - 1)
    for key in keys:
        high, low = low, high ^ (_mixed(low ^ key) & ((1 << high_bits) - 1))
        low_bits, high_bits = high_bits, low_bits
    return (high << low_bits) | low


def _mixed(x):
    """Bits of a number below 2³², well stirred; products stay below 2⁶³."""
    for _ in range(2):
        x = (((x >> 16) ^ x) * 0x45D9F3B) & _LOW_32
    return (x >> 16) ^ x


def samples_at(epoch, begin, end):
    """Indices of the samples at positions `begin` to `end` of an epoch, as a list."""
    if epoch.indices is not None:
        return epoch.indices[begin:end]
    if not epoch.is_shuffled:
        return list(range(begin, end))
    import torch

    return permuted(torch.arange(begin, end), epoch.count, epoch.seed, epoch.epoch).tolist()


def end_of(epoch, start=0):
    """Position at which an epoch ends, read from `start` on."""
    if not epoch.drops_last:
        return epoch.count
    return start + (max(0, epoch.count - start) // epoch.global_batch) * epoch.global_batch


def num_batches(epoch, start=0):
    """Batches of an epoch from a position on."""
    return -(-max(0, end_of(epoch, start) - start) // epoch.global_batch)


def share_of(size, rank, ranks):
    """Where a rank's share of `size` things begins and ends: equal, or one more.

    >>> [share_of(10, rank, 3) for rank in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return size * rank // ranks, size * (rank + 1) // ranks


def sizes_at(epoch, position, rank, ranks):
    """Size of the batch at a position, and how much of it is a rank's own."""
    size = min(epoch.global_batch, epoch.count - position)
    begin, end = share_of(size, rank, ranks)
    return size, end - begin


def shares(epoch, start, rank, ranks):
    """What one rank reads from a position of an epoch on: a `Share` for each batch.

    All ranks together read each sample of the epoch once. Where a batch has fewer samples than
    there are ranks, those left without read one of the others', which counts nothing.
    """
    end = end_of(epoch, start)
    stride = max(1, _CHUNK // epoch.global_batch) * epoch.global_batch
    for first in range(start, end, stride):
        chunk = samples_at(epoch, first, min(first + stride, end))
        for at in range(0, len(chunk), epoch.global_batch):
            batch = chunk[at : at + epoch.global_batch]
            own = batch[slice(*share_of(len(batch), rank, ranks))]
            yield Share(own or batch[:1], len(own), len(batch))


def seed_of(seed, epoch, index):
    """Seed of the random numbers that one sample draws in one epoch: 64 bits (SplitMix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + index + 1) * 0x9E3779B97F4A7C15
    x &= 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return x ^ (x >> 31)
