"""A run that can be taken up again: where it is, what it saves, and when.

Order matters: the generators of random numbers are put back after the loader has begun, and saves
are made only between optimizer steps, when a step is whole.
"""

import atexit
import os
import sys
from collections import namedtuple

import torch

from paceline.loop import layout, order
from paceline.loop.errors import LoopError
from paceline.loop.loaders import source_of
from paceline.loop.ranks import connected
from paceline.loop.saving import randomness
from paceline.loop.saving.checkpoint import Checkpoints
from paceline.loop.saving.paced import PacedRun, check_count, check_format
from paceline.loop.saving.states import modules_of, put_together, refuse_nameless, taken_apart
from paceline.loop.saving.values import decoded, encoded
from paceline.loop.weighing import Weights

VERSION = 2
_END = object()

#: As in `resume`.
Settings = namedtuple(
    "Settings", ["seed", "every_s", "every_steps", "interruptions_per_hour", "keep"]
)


class Run(PacedRun):
    """What a process knows of the run in a folder.

    Attributes:
        next_epoch: Number of the epoch that is iterated next.
        epoch: That the position is in.
        position: Samples of the epoch done by all ranks; batches, of an iterable.
    """

    def __init__(self, place):
        super().__init__()
        self.place = place
        self.next_epoch = 0
        self.epoch = self.position = 0
        self._objects = {}
        self._settings = Settings(None, None, None, None, 2)
        self._is_open = self._is_iterating = self._has_loaded = False
        self._is_counted = self._is_owed = False
        self._body = self._directory = self._seed = None
        self._source = None
        self._global_batch = None
        self._stepped = 0
        self._optimizers = set()
        self._weights = Weights()
        self._began_rng = None

    @staticmethod
    def say(line):
        """Print a line for whoever watches the run: rank 0's, on standard error."""
        if layout.current().rank == 0:
            print("paceline: " + line, file=sys.stderr, flush=True)

    @property
    def is_first(self):
        """Whether this rank decides when a save is due."""
        return self._ranks.rank == 0

    def adopt(self, objects, settings):
        """Take what a call of `resume` gives."""
        self._objects, self._settings = objects, settings
        for held in objects.values():
            if isinstance(held, torch.optim.Optimizer) and id(held) not in self._optimizers:
                self._optimizers.add(id(held))
                held.register_step_post_hook(self._after_step)
        if layout.current().ranks > 1:
            self._weights.watch(modules_of(objects))

    def _after_step(self, *_args):
        self._stepped += 1

    def first_epoch(self):
        """The epoch that the newest save is in."""
        self._open()
        return 0 if self._body is None else self._body["epoch"]

    def _open(self):
        """Join the ranks, take the folder, find the newest save."""
        if self._is_open:
            return
        self._ranks = connected()
        self._saves = Checkpoints(self.place, self._ranks, keep=self._settings.keep, say=self.say)
        found = self._saves.newest()
        if found is not None:
            self._directory, self._body = found
            self._timing.last = self._body["timing"]
        self._notices.listen()
        self._is_open = True
        if self._ranks.count == 1:
            atexit.register(self._at_exit)

    def iterate(self, loader):
        """Batches of the next epoch, from where the run was."""
        self._open()
        self._saves.keep = self._settings.keep
        if self._is_iterating:
            raise LoopError(
                "two loops run over the saves in `%s` at once" % self.place,
                hint="give each loader its own: `loop.resume(…, folder=…)`",
            )
        number, self.next_epoch = self.next_epoch, self.next_epoch + 1
        body = self._body
        is_here = body is not None and number == body["epoch"]
        if is_here or (body is not None and not self._has_loaded):
            self._load()
        if body is not None and number < body["epoch"]:
            return
        if self._source is None or self._source.user is not loader:
            self._source = source_of(loader)
        self.epoch, self.position = number, body["position"] if is_here else 0
        self._is_iterating = True
        try:
            yield from self._batches(self._source, is_here)
        finally:
            self._is_iterating = False
            self._weights.factor = 1.0

    def _batches(self, source, is_here):
        """Yield batches; the run is between steps whenever one is asked for."""
        self._choose_seed()
        begin = self._begin_ordered if source.is_ordered else self._begin_replayed
        is_fresh = is_here and source.is_ordered and self.position == 0
        if is_fresh:
            self._restore_randomness()
        iterator, advance = begin(source, is_here)
        if is_here and not is_fresh:
            self._restore_randomness()
        self._timing.begin()
        while iterator is not None:
            batch = next(iterator, _END)
            if batch is _END:
                break
            yield batch
            advance()
            if self._is_whole() and self._between_steps():
                del iterator, batch
                self._end()
        self._epoch_ends()

    def _begin_ordered(self, source, is_here):
        """The iterator over a map-style loader, and what counts a batch of it."""
        now = layout.current()
        self._choose_batch(source, now)
        epoch = source.epoch(self.epoch, self._seed, self._global_batch)
        if is_here:
            check_count(self._body, epoch.count)
        self._num_samples, end = epoch.count, order.end_of(epoch, self.position)
        self._epoch_end = end
        share = (now.data_rank, now.data_ranks)

        def weigh():
            """Weigh the next batch by its share of all items."""
            if self.position < end:
                size, own = order.sizes_at(epoch, self.position, *share)
                self._weights.factor = own * now.data_ranks / size

        def advance():
            """One batch further."""
            after = self.position + self._global_batch
            self.position = min(getattr(source, "position", after), end)
            weigh()

        weigh()
        if self.position >= end:
            return None, advance
        return source.begin(epoch, self.position, *share), advance

    def _begin_replayed(self, source, is_here):
        """The iterator over any iterable, and what counts a batch of it."""
        self._num_samples = self._epoch_end = None
        state = None
        if is_here:
            saved = self._body["loader"]
            rank = layout.current().rank
            if len(saved) == self._ranks.count:
                state = decoded(saved[rank])
            else:
                self.say(
                    "the loader shares out its samples itself: on %d ranks instead of %d, some of "
                    "this epoch are read twice or not at all" % (self._ranks.count, len(saved))
                )
            if self._body["began_rng"] is not None:
                randomness.restore(self._body["began_rng"])
        self._began_rng = randomness.states()

        def advance():
            self.position += 1

        return source.begin(self.epoch, self._seed, self.position, state, self.say), advance

    def _choose_seed(self):
        if self._seed is None:
            saved = None if self._body is None else self._body["seed"]
            given = self._settings.seed
            mine = saved if saved is not None else torch.initial_seed() if given is None else given
            self._seed = self._ranks.from_first(int(mine))

    def _choose_batch(self, source, now):
        """Keep the batch over all ranks, where the script asks for what it asked for."""
        mine = source.batch * now.data_ranks
        if self._global_batch is None:
            body = self._body
            is_kept = body is not None and body["batch"] == source.batch
            self._global_batch = body["global_batch"] if is_kept else mine
            if self._global_batch != mine:
                self.say(
                    "the batch of %d over all ranks is kept: %d ranks read %s each"
                    % (self._global_batch, now.data_ranks, _each(self._global_batch, now))
                )
        self._batch = source.batch
        if self._global_batch < now.data_ranks:
            raise LoopError(
                "a batch of %d has no sample for each of %d ranks"
                % (self._global_batch, now.data_ranks),
                hint="give a larger batch, or start fewer ranks",
            )

    def _is_whole(self):
        """Whether an optimizer has stepped since the last save could be made."""
        if self._optimizers and not self._stepped:
            return False
        self._stepped = 0
        self.step += 1
        self._timing.step(self._saves.is_busy)
        return True

    def _between_steps(self):
        """Save if any rank wants it; whether the run must end."""
        self._hear_of_saves()
        must_end, must_save = self._notices.wishes()
        ends, saves, is_due = self._ranks.agree([must_end, must_end or must_save, self._is_due()])
        if is_due and not saves and self._ends_with_script():
            self._is_owed = True
        elif saves or is_due:
            self._notices.must_save = False
            self.save(waits=bool(ends))
        return bool(ends)

    def _ends_with_script(self):
        """Whether the epoch's batches are done, and `epochs` tells when the script is done with it.

        A save that is due then waits until it holds what the script does after the batches, so
        that no run begins with an epoch of no batches.
        """
        return self._is_counted and self.position == self._epoch_end

    def save(self, *, waits=False, epoch=None, position=None):
        """Save the state of now.

        Args:
            waits: Until it is committed.
            epoch: That the save is in; the one in hand if None.
            position: In the epoch; likewise.
        """
        tensors, tree = taken_apart(self._objects)
        facts = {
            "version": VERSION,
            "step": self.step,
            "epoch": self.epoch if epoch is None else epoch,
            "position": self.position if position is None else position,
            "seed": self._seed,
            "batch": getattr(self, "_batch", None),
            "global_batch": self._global_batch,
            "num_samples": self._num_samples if epoch is None else None,
            "ranks": self._ranks.count,
            "parts": layout.parts(),
            "rng": dict(randomness.states(), share=layout.current().data_rank),
            "began_rng": self._began_rng,
            "loader": self._loader_states(),
            "timing": self._timing.last,
            "torch": torch.__version__,
        }
        self._saves.save(tensors, tree, facts, waits=waits)
        self._saved_step = self.step
        self._timing.saved()
        if waits:
            self._hear_of_saves()

    def _loader_states(self):
        if self._source is None or self._source.is_ordered:
            return []
        state = self._source.state()
        try:
            mine = encoded(state, "loader")
        except LoopError:
            mine = None
        return self._ranks.gather(mine)

    def _epoch_ends(self):
        """Finish what is under way; save where the epoch was worth it."""
        pending = self._ranks.settle()
        if self._optimizers and not self.step:
            return
        is_worth = self._ranks.from_first(self._timing.is_worth_a_save())
        must_end = bool(pending and pending[0]) or self._notices.must_end
        must_end = any(self._ranks.gather(must_end))
        must_save = must_end or bool(pending and pending[1])
        is_due = is_worth or bool(pending and pending[2])
        if self.step > self._saved_step and (must_save or is_due):
            if must_save or not self._ends_with_script():
                self.save(waits=must_end)
            else:
                self._is_owed = True
        self._saves.join()
        self._hear_of_saves()
        if must_end:
            self._end()

    def begin_epoch(self, epoch):
        """`epochs` begins one, and will tell when it is over."""
        self.next_epoch = epoch
        self._is_counted = True

    def epoch_is_over(self, epoch, *, is_last):
        """The script has done what it does after an epoch: the last one is saved so.

        Args:
            epoch: That comes next.
            is_last: Whether the one before was the last.
        """
        is_owed, self._is_owed = self._is_owed, False
        if (is_last or is_owed) and self._objects and self.step > 0:
            self.save(waits=is_last, epoch=epoch, position=0)

    def _at_exit(self):
        """Save what a script without `epochs` has done, if it ended well between epochs."""
        failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
        is_done = not self._is_iterating and self.step > self._saved_step
        if is_done and not failed and self._source is not None:
            self.save(waits=True, epoch=self.epoch + 1, position=0)

    def _end(self):
        self._source = None
        super()._end()

    def _load(self):
        """Give the objects their state, and say from where."""
        body = self._body

        def read(tensors):
            self._saves.read(self._directory, tensors)

        check_format(self._directory, body, VERSION)
        if body["parts"] != layout.parts():
            refuse_nameless(self._objects, body["parts"], layout.parts())
        put_together(self._objects, body["tree"], read)
        self.step = self._saved_step = body["step"]
        if not self._has_loaded:
            self._has_loaded = True
            self.say("goes on after step %d (epoch %d) from %s%s" % (
                self.step, body["epoch"], os.path.relpath(self._directory), self._changed_ranks()
            ))  # fmt: skip

    def _changed_ranks(self):
        was = _placed(self._body["ranks"], self._body["parts"])
        now = _placed(self._ranks.count, layout.parts())
        if was == now:
            return ""
        return "; made on %s, now %s: what the model draws (dropout) differs" % (was, now)

    def _restore_randomness(self):
        """Put the generators back; ranks that read alike draw alike if weights are split anew."""
        kept, share = self._body["rng"], layout.current().data_rank
        is_same = self._body["parts"] == layout.parts() and len(kept) == self._ranks.count
        mine = kept[self._ranks.rank : self._ranks.rank + 1] if is_same else []
        mine = mine or [one for one in kept if one["share"] == share]
        if mine:
            randomness.restore(mine[0])
        else:
            randomness.begin(order.seed_of(self._seed, self.step, share))


def _placed(ranks, parts):
    return "%d ranks%s" % (ranks, " (%s)" % parts if parts else "")


def _each(global_batch, now):
    sizes = {e - b for b, e in (order.share_of(global_batch, r, now.data_ranks)
                                for r in range(now.data_ranks))}  # fmt: skip
    return " or ".join(map(str, sorted(sizes)))
