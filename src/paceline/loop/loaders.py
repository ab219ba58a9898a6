"""Where batches come from: the user's loader, read in an order that can be taken up anywhere.

A `DataLoader` over a map-style dataset gets our batch sampler. Any other iterable is taken up by
its own state, or read again up to where it was.
"""

import os
import random
import sys
import time

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

from paceline.loop import layout, order
from paceline.loop.errors import LoopError
from paceline.loop.orphans import EndsWith
from paceline.loop.saving.notices import held_back

try:
    import numpy
except ImportError:
    numpy = None


def source_of(loader):
    """Batches of a loader, from any position of any epoch."""
    feeder = sys.modules.get("paceline.loop.feeding.feeder")
    if feeder is not None and isinstance(loader, feeder.Feed):
        return Fed(loader)
    if type(loader).__iter__ is not DataLoader.__iter__ and isinstance(loader, DataLoader):
        return Replayed(loader)
    is_map = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if is_map and type(loader.batch_sampler) is BatchSampler:
        return Ordered(loader)
    return Replayed(loader)


class Ordered:
    """Batches of a map-style loader: every sample once per epoch over all ranks.

    Attributes:
        is_ordered: True: the position counts samples of all ranks.
        batch: Samples of a rank's batch, as the script says.
        count: Samples of an epoch, as far as is known before it begins.
    """

    is_ordered = True

    def __init__(self, loader):
        self.user = loader
        self.batch = loader.batch_size
        self.sampler = loader.sampler
        self.count = len(loader.dataset)
        self._batches = _Batches()
        self._loader = self._made(loader)

    def _made(self, loader):
        more = {}
        if loader.num_workers:
            more["prefetch_factor"] = loader.prefetch_factor
            more["persistent_workers"] = loader.persistent_workers
            more["multiprocessing_context"] = loader.multiprocessing_context
        return DataLoader(
            Seeded(loader.dataset),
            batch_sampler=self._batches,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=EndsWith(os.getpid(), loader.worker_init_fn),
            generator=torch.Generator(),
            **more,
        )

    def epoch(self, number, seed, global_batch):
        """What an epoch consists of."""
        sampler, indices, is_shuffled = self.sampler, None, False
        if type(sampler) is DistributedSampler:
            is_shuffled = sampler.shuffle
        elif type(sampler) is RandomSampler and not sampler.replacement and _is_all(sampler):
            is_shuffled = True
        elif type(sampler) is not SequentialSampler:
            indices = _drawn(sampler, order.seed_of(seed, number, 0))
        return order.Epoch(
            self.count if indices is None else len(indices),
            seed, number, is_shuffled, global_batch, self.user.drop_last, indices,
        )  # fmt: skip

    def begin(self, epoch, start, rank, ranks):
        """An iterator over the batches of this rank, from a position on."""
        self._batches.begin(epoch, start, rank, ranks)
        with held_back():
            return iter(self._loader)


class _Batches:
    """Batch sampler of the loader that is read: yields what `Seeded` understands."""

    def begin(self, epoch, start, rank, ranks):
        """Begin an epoch at the batch ``start``, for one of ``ranks``."""
        self._from = (epoch, start, rank, ranks)

    def __iter__(self):
        epoch = self._from[0]
        for share in order.shares(*self._from):
            yield epoch.seed, epoch.epoch, share.indices

    def __len__(self):
        return order.num_batches(*self._from[:2])


class Seeded(Dataset):
    """A dataset of which every sample draws its random numbers from (seed, epoch, index).

    It is asked for batches. A dataset with a `__getitems__` of its own draws once per batch.
    """

    def __init__(self, dataset):
        self.plain = dataset
        # Tensors draw nothing: seeding would take longer than reading them.
        self.draws = type(dataset) is not TensorDataset

    def __getattr__(self, name):
        if name in ("plain", "draws"):
            raise AttributeError(name)
        return getattr(self.plain, name)

    def __len__(self):
        return len(self.plain)

    def __getitems__(self, asked):
        """The samples of a batch: (seed, epoch, indices)."""
        seed, epoch, indices = asked
        if not self.draws:
            return [self.plain[index] for index in indices]
        kept = _generators() if get_worker_info() is None else None
        try:
            if callable(getattr(self.plain, "__getitems__", None)):
                _seed(order.seed_of(seed, epoch, indices[0]))
                return self.plain.__getitems__(indices)
            return [self._sample(seed, epoch, index) for index in indices]
        finally:
            if kept is not None:
                _put_back(kept)

    def _sample(self, seed, epoch, index):
        _seed(order.seed_of(seed, epoch, index))
        return self.plain[index]


def _seed(value):
    random.seed(value)
    torch.default_generator.manual_seed(value)
    if numpy is not None:
        numpy.random.seed(value & 0xFFFFFFFF)


def _generators():
    """What the training draws from, which loading in its process must not move."""
    drawn = None if numpy is None else numpy.random.get_state()
    return random.getstate(), torch.get_rng_state(), drawn


def _put_back(kept):
    random.setstate(kept[0])
    torch.set_rng_state(kept[1])
    if numpy is not None:
        numpy.random.set_state(kept[2])


def _is_all(sampler):
    return sampler.num_samples == len(sampler.data_source)


def _drawn(sampler, seed):
    """Indices that a sampler of the user's gives, drawn from a seed: the same on all ranks."""
    kept = _generators()
    try:
        _seed(seed)
        given = getattr(sampler, "generator", None)
        if isinstance(given, torch.Generator):
            given.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
        return [int(index) for index in sampler]
    finally:
        _put_back(kept)


class Fed:
    """Batches of `paceline.loop.feed`, which reads by the same order."""

    is_ordered = True

    def __init__(self, feed):
        self.user, self.batch = feed, feed.batch

    def epoch(self, number, seed, global_batch):
        """What an epoch consists of."""
        feed, ranks = self.user, layout.current().data_ranks
        if global_batch % ranks:
            raise LoopError(
                "a batch of %d does not divide by %d ranks" % (global_batch, ranks),
                "start a number of ranks that divides it",
            )
        feed.batch = global_batch // ranks
        return order.Epoch(
            len(feed.reader), seed, number, feed.shuffle,
            global_batch, feed.drops_last, None,
        )  # fmt: skip

    def begin(self, epoch, start, rank, ranks):
        """An iterator over the batches of this rank, from a position on."""
        self.user.load_state_dict(
            {"epoch": epoch.epoch, "position": start, "seed": epoch.seed, "count": epoch.count}
        )
        with held_back():
            return iter(self.user)

    @property
    def position(self):
        """In samples of all ranks, after the batch in hand: damaged batches are left out."""
        return self.user.position


class Replayed:
    """Batches of any iterable: taken up by its own state, else read again up to where it was.

    Attributes:
        is_ordered: False: the position counts batches of this rank.
    """

    is_ordered = False
    batch = count = None

    def __init__(self, loader):
        self.user = loader
        self.has_state = callable(getattr(loader, "state_dict", None)) and callable(
            getattr(loader, "load_state_dict", None)
        )

    def state(self):
        """Its own, as far as it has one."""
        return self.user.state_dict() if self.has_state else None

    def begin(self, number, seed, start, state, say):
        """An iterator over the batches of an epoch, from a position on.

        Args:
            number: Of the epoch.
            seed: Of the run.
            start: Batches to leave out.
            state: What `state` gave there; None where it is not known.
            say: Prints a line.
        """
        if callable(getattr(self.user, "set_epoch", None)):
            self.user.set_epoch(number)
        if isinstance(self.user, DataLoader):
            self.user.generator = torch.Generator()
            self.user.generator.manual_seed(order.seed_of(seed, number, 0) & 0x7FFFFFFFFFFFFFFF)
        is_known = start and state is not None
        if is_known:
            self.user.load_state_dict(state)
        with held_back():
            iterator = iter(self.user)
        if is_known:
            return iterator
        if start:
            began_s = time.perf_counter()
            for _ in range(start):
                next(iterator, None)
            say(
                "the loader keeps no state: %d batches were read again, in %.1f s"
                % (start, time.perf_counter() - began_s)
            )
        return iterator
