"""Where batches of a trial come from: the script's loader, one like it, or the same few again.

Standard library and torch only; runs in the user's Python.
"""

import _paceline_observer as observer


class Feed:
    """Batches of a loader, epoch after epoch; its workers may stay to the end."""

    stays = False

    def __init__(self, loader, iterator=None):
        self.loader = loader
        self.iterator = iterator
        self.has_begun = False

    def next(self):
        """The next batch; a new epoch begins when one has ended."""
        for _ in range(2):
            if self.iterator is None:
                self.begin()
                self.has_begun = True
            try:
                return next(self.iterator)
            except StopIteration:
                self.iterator = None
        raise StopIteration

    def begin(self):
        """Begin an epoch."""
        from torch.utils.data import DataLoader

        self.iterator = DataLoader.__iter__(self.loader)

    def renew(self):
        """Leave the rest of an epoch out; workers that stay are left alone."""
        if not getattr(self.loader, "persistent_workers", False):
            self.close()

    def close(self):
        """End its workers.

        A loader whose workers stay and its iterator hold each other. Left to the collector, which
        ends their queues first, the workers never hear that they are to end: each is waited for
        until a limit of PyTorch has passed, and they load ahead while something else is tried.
        """
        end = getattr(self.iterator, "_shutdown_workers", None)
        if end is not None:
            end()
        self.iterator = None


class Replay:
    """The same few batches again and again."""

    has_begun = stays = False

    def __init__(self, batches):
        self.batches = batches
        self.place = 0

    def renew(self):
        """They never end."""

    def next(self):
        """The next of them; a container of its own, its tensors shared."""
        self.place += 1
        return _shallow(self.batches[self.place % len(self.batches)])


def feed_of(torch, how, iterator, kept):
    """Where batches come from.

    ``{"as": "own"}`` the loader of the script; ``"replay"`` the batches that were kept, ``times``
    of them made into one; ``"loader"`` a loader like it with other ``workers``, ``persistent``,
    ``collate``, with samples that cost nothing (``free_samples``) or with the first few batches of
    an epoch in the place of all (``is_read_again``).
    """
    loader = iterator._paceline_loader
    if how["as"] == "own":
        return Feed(loader, iterator)
    if how["as"] == "replay":
        times = how.get("times", 1)
        if times == 1:
            return Replay(kept)
        many = (kept * times)[:times]
        return Replay([joined(torch, many)])
    return Feed(_loader_like(torch, loader, how))


def _loader_like(torch, loader, how):
    """A loader with the same samples in the same batches, and other settings."""
    data = torch.utils.data
    workers = how.get("workers", loader.num_workers)
    dataset = loader.dataset
    collate = loader.collate_fn
    if how.get("free_samples"):
        dataset = observer.load("torch_input").FreeSamples(dataset, loader)
    if how.get("collate") == "default":
        collate = data.default_collate
    settings = {
        "num_workers": workers,
        "collate_fn": collate,
        "pin_memory": how.get("pinned", loader.pin_memory),
        "worker_init_fn": loader.worker_init_fn,
        "timeout": loader.timeout if workers else 0,
        "generator": loader.generator,
    }
    if workers:
        settings["persistent_workers"] = how.get("persistent", loader.persistent_workers)
        settings["prefetch_factor"] = loader.prefetch_factor or 2
        settings["multiprocessing_context"] = loader.multiprocessing_context
    if isinstance(dataset, data.IterableDataset) or loader.batch_sampler is None:
        settings.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
        if not isinstance(dataset, data.IterableDataset):
            settings["sampler"] = loader.sampler
    elif how.get("is_read_again"):
        settings["batch_sampler"] = observer.load("torch_input").FewBatches(loader.batch_sampler)
    else:
        settings["batch_sampler"] = loader.batch_sampler
    return data.DataLoader(dataset, **settings)


def _shallow(batch):
    if isinstance(batch, dict):
        return type(batch)({key: _shallow(value) for key, value in batch.items()})
    return list(batch) if type(batch) is list else batch


def joined(torch, batches):
    """Several batches as one, along their first dimension.

    Raises:
        TypeError: They hold something that has no such dimension.
    """
    first = batches[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(batches) if first.ndim else first
    if isinstance(first, dict):
        return type(first)({k: joined(torch, [one[k] for one in batches]) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined(torch, list(part)) for part in zip(*batches)))
    if isinstance(first, (list, tuple)):
        if first and isinstance(first[0], (str, int, float)):
            return type(first)(value for one in batches for value in one)
        return type(first)(joined(torch, list(part)) for part in zip(*batches))
    raise TypeError("%s cannot be joined" % type(first).__name__)
