"""``feed``: batches on the device, made by threads or processes while it computes."""

import sys
from collections import namedtuple

from .. import layout, order
from ..decode import LIMITS, Recipe
from ..errors import LoopError
from ..readers import open_reader
from ..readers.records import Damage
from .blocks import BlockOrder
from .delivery import deliver_to
from .filling import Filler
from .processes import Processes
from .threads import LEAST_AHEAD, Threads
from .tuning import Tuner, num_cores

#: Mean and deviation of ImageNet's training images, in 0-1 (torchvision's models).
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_SAID = 20

State = namedtuple("State", ["epoch", "position", "seed", "count"])


class DamagedData(LoopError):
    """Samples cannot be read, and ``damaged="refuse"`` was asked for."""


def feed(
    data, batch, *, size=224, crop=0.875, is_random=False, is_scaled=False, window=None,
    dtype=None, transform=None, shuffle=True, seed=0, last="keep", damaged="refuse",
    device=None, normalise=None, precision=None, threads=None, processes=None, ahead=None,
    limits=LIMITS, say=None,
):  # fmt: skip
    """Batches of ``data`` on the device, made while it computes.

    Every sample is read once per epoch on any number of ranks, threads and processes, in an order
    that follows from seed and epoch alone; a stopped epoch goes on at its position in no time.

    Args:
        data: A folder of images (a folder per class), WebDataset shards, Parquet or Arrow files,
            an LMDB, token files, arrays, or a data set with ``len`` and ``[]``.
        batch: Samples of this process's batches.
        size: Pixels of a side of the images sent.
        crop: Share of the shorter side that is cut out of the middle.
        is_random: Cut at random places and flip at random instead; for training.
        is_scaled: Decode large JPEGs at a lower resolution: faster, slightly other pixels.
        window: Tokens of a sample; for token files.
        dtype: Of token files without a header.
        transform: The user's function of decoded pixels ``[h, w, 3]`` (or of an array), to an
            array; runs in processes.
        shuffle: Whether the order is drawn anew for each epoch.
        seed: Of the order and of what samples draw.
        last: ``"keep"`` a shorter last batch or ``"drop"`` it.
        damaged: ``"refuse"`` damaged samples with an error, or ``"skip"`` and count them.
        device: A ``torch.device`` or its name; None is the CPU.
        normalise: ``(means, deviations)`` per channel in 0-1, applied on the device.
        precision: ``torch.dtype`` of normalised images; float32 without.
        threads: Number of threads; without, chosen and corrected while running.
        processes: Number of processes for ``transform`` or the data set; one per core without.
        ahead: Batches made ahead; without, 4, or as many as keep all threads at work.
        limits: Most that a sample may ask for.
        say: Function that is given a line of text; prints to standard error without.

    Raises:
        UnreadableData: There is nothing that a reader knows.
        DamagedData: Something is damaged and ``damaged`` is ``"refuse"``.
    """
    reader = open_reader(data, window=window, dtype=dtype, limits=limits)
    recipe = Recipe(size, crop, is_random, is_scaled)
    filler = Filler(reader, recipe, limits, transform, seed)
    return Feed(
        filler, batch, shuffle=shuffle, seed=seed, last=last, damaged=damaged,
        delivery=deliver_to(device, reader.kind, filler, normalise, precision),
        num_threads=threads, num_processes=processes, ahead=ahead, say=say,
    )  # fmt: skip


class Feed:
    """An iterable of batches; one iteration is what is left of an epoch.

    Attributes:
        damaged: ``Damage(name, reason)`` of what was skipped.
        choice: Threads chosen, with expected and measured samples per second; None before that.
        waited_s: Time that the consumer waited for batches of this epoch.
    """

    def __init__(
        self, filler, batch, *, shuffle, seed, last, damaged, delivery, num_threads,
        num_processes, ahead, say,
    ):  # fmt: skip
        if damaged not in ("refuse", "skip") or last not in ("keep", "drop"):
            raise ValueError('damaged is "refuse" or "skip", last is "keep" or "drop"')
        if batch < 1 or (ahead is not None and ahead < 1):
            raise ValueError("a batch and what is made ahead are at least 1")
        self.filler, self.reader, self.batch, self.ahead = filler, filler.reader, batch, ahead
        self.shuffle, self.seed, self.drops_last = shuffle, seed, last == "drop"
        self.skips, self.delivery = damaged == "skip", delivery
        self.num_threads, self.num_processes = num_threads, num_processes
        self.say = say or _to_stderr
        self.epoch = self.position = 0
        self.damaged, self.choice, self.waited_s, self.engine = [], None, 0.0, None
        self.share = layout.current()
        if self.reader.damaged:
            self._note([tuple(one) for one in self.reader.damaged])

    def __len__(self):
        return order.num_batches(self._epoch(), self.position)

    def __iter__(self):
        self.close()
        share = self.share = layout.current()
        self.waited_s = 0.0
        engine = self.engine = self._start(share)
        tuner = self._tuner(engine)
        try:
            for batch in self.delivery(self._filled(engine, tuner)):
                self.position += batch.size
                if batch.indices:
                    yield batch
            self.epoch, self.position = self.epoch + 1, 0
        finally:
            self.close()

    def state_dict(self):
        """Where the next batch begins: small, and of use to any number of ranks."""
        return {
            "epoch": self.epoch, "position": self.position, "seed": self.seed,
            "count": len(self.reader),
        }  # fmt: skip

    def load_state_dict(self, state):
        """Go on where a state says.

        Raises:
            ValueError: It is of other data.
        """
        if state["count"] != len(self.reader):
            told = (state["count"], len(self.reader))
            raise ValueError("the state is of %d samples, the data has %d" % told)
        self.epoch, self.position = state["epoch"], state["position"]
        self.seed = self.filler.seed = state["seed"]

    def set_epoch(self, epoch):
        """Begin that epoch."""
        self.epoch, self.position = epoch, 0

    def close(self):
        """End the threads and processes; an iteration that goes on ends."""
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    def _epoch(self):
        ranks = layout.current().data_ranks
        indices = None
        if self.shuffle and getattr(self.reader, "block_ends", None):
            indices = BlockOrder(self.reader.block_ends, self.seed, self.epoch)
        return order.Epoch(
            len(self.reader), self.seed, self.epoch, self.shuffle, self.batch * ranks,
            self.drops_last, indices,
        )  # fmt: skip

    def _start(self, share):
        shares = order.shares(self._epoch(), self.position, share.data_rank, share.data_ranks)
        made = (self.filler, shares, self.epoch, self.batch)
        if self.filler.is_python:
            rows = max(1, min(8, self.batch // 4))
            ahead = self.ahead or LEAST_AHEAD
            return Processes(*made, ahead, self.num_processes or num_cores(), rows)
        rows = 1 if self.reader.kind == "image" else self.batch
        number = self.num_threads or (num_cores() if self.choice is None else self.choice[0])
        return Threads(*made, self.ahead, number, rows, self.delivery.new_arrays)

    def _tuner(self, engine):
        if self.num_threads or self.filler.is_python or self.choice is not None:
            return None
        return Tuner(engine, num_cores())

    def _filled(self, engine, tuner):
        """Batches as they are filled, without their damaged rows."""
        while True:
            filled, waited_s = engine.next()
            self.waited_s += waited_s
            if filled is None:
                return
            if tuner is not None:
                tuner.after_batch(waited_s)
                self._tell(tuner)
            yield engine, self._whole(filled)

    def _tell(self, tuner):
        if tuner.choice is None or tuner.choice == self.choice:
            return
        is_settled = tuner.choice.measured_per_s is not None
        if is_settled:
            self.choice = tuner.choice
            told = (*self.choice, tuner.cores)
            self.say("feed: %d threads: %.0f samples/s expected, %.0f measured, on %d cores" % told)

    def _whole(self, filled):
        """The batch without its damaged rows, which are noted."""
        share = filled.share
        count = len(share.indices)
        bad = dict(filled.damaged)
        self._note([(self.reader.name_of(share.indices[r]), why) for r, why in sorted(bad.items())])
        rows = [row for row in range(count) if row not in bad]
        for place, row in enumerate(rows if bad else ()):
            filled.inputs[place], filled.labels[place] = filled.inputs[row], filled.labels[row]
        own = len([row for row in rows if row < share.num_own])
        indices = [share.indices[row] for row in rows]
        if not rows and self.share.data_ranks > 1:
            indices = [self.filler.fill_any(filled.inputs, filled.labels, self.epoch)]
        return filled, indices, own, share.batch

    def _note(self, found):
        """List damaged samples, or raise."""
        new = [Damage(*one) for one in found]
        if new and not self.skips:
            raise DamagedData("%s: %s" % new[0], 'damaged="skip" goes on without, and counts')
        for one in new[: max(0, _SAID - len(self.damaged))]:
            self.say("feed: skipped %s: %s" % one)
        self.damaged.extend(new)


def _to_stderr(line):
    print(line, file=sys.stderr, flush=True)
