"""A Keras run that can be taken up again: where it is, what it saves, and when."""

import os
import sys
import time
from collections import namedtuple

import keras

from paceline.loop.keras import workers
from paceline.loop.keras.saves import Saves, put_back, read, state_of
from paceline.loop.saving.paced import PacedRun, check_count, check_format

VERSION = 1

#: As in `resume`.
Settings = namedtuple("Settings", ["every_s", "every_steps", "interruptions_per_hour", "keep"])
#: Callbacks of Keras that keep nothing for later epochs.
_STATELESS = {
    "CSVLogger", "LambdaCallback", "LearningRateScheduler", "ProgbarLogger", "TensorBoard",
    "TerminateOnNaN",
}  # fmt: skip


class Run(PacedRun):
    """What a process knows of the run in a folder.

    Attributes:
        model: Of Keras, compiled.
        batches: That it reads.
        place: Devices and workers.
        epochs: Of the whole run.
        epoch: That the position is in.
        position: Samples of the epoch done, over all devices.
    """

    def __init__(self, model, batches, place, folder, settings, epochs, callbacks):
        super().__init__()
        self.model, self.batches, self.place, self.epochs = model, batches, place, epochs
        self.epoch = self.position = 0
        self._settings, self._callbacks = settings, callbacks
        self._saves = Saves(folder, is_writer=self.is_first, keep=settings.keep, say=self.say)
        self._found = self._saves.newest()
        if self._found is not None:
            self._check_alike(self._found[1])
            self._timing.last = self._found[1]["timing"]
        self._last_batch = 0
        self._agree = None
        self._notices.listen()

    def say(self, line):
        """Print a line for whoever watches the run: the first worker's, on standard error."""
        if self.is_first:
            print("paceline: " + line, file=sys.stderr, flush=True)

    @property
    def is_first(self):
        """Whether this worker says things, and writes."""
        return self.place.rank == 0

    @property
    def must_stop(self):
        """Whether a callback has ended the training."""
        return bool(getattr(self.model, "stop_training", False))

    def build(self):
        """Have all variables of the model, its optimizer and its metrics, as `fit` would."""
        with workers.scope_of(self.model):
            self.model._symbolic_build(data_batch=self.batches[0])
        if self.place.workers > 1:
            self._agree = workers.agreement(self.model)

    def begins_at(self):
        """Epoch and position at which this process begins."""
        if self._found is None:
            return 0, 0
        body = self._found[1]
        if body["is_stopped"]:
            self.say("a callback ended the run after epoch %d" % (body["epoch"] - 1))
            return self.epochs, 0
        is_over = body["position"] + self.batches.batch_size > len(self.batches.samples)
        return (body["epoch"] + 1, 0) if is_over else (body["epoch"], body["position"])

    def epoch_begins(self, epoch):
        """An epoch begins; the first one with the state of the newest save."""
        self.epoch, self.position, self._last_batch = epoch, self.batches.start, -1
        self.batches.epoch = epoch
        self.take_up()
        if self.position == 0:
            self.model.reset_metrics()
        self._timing.begin()

    def take_up(self):
        """Give the model the state of the newest save, once."""
        if self._found is not None:
            (directory, body), self._found = self._found, None
            put_back(self.model, read(directory))
            self.step = self._saved_step = body["step"]
            self._say_from_where(directory, body, self._callbacks)

    def step_ends(self, batch):
        """All batches of the epoch up to one are done."""
        done, self._last_batch = batch - self._last_batch, batch
        self.step += done
        self.position += done * self.batches.batch_size
        self._timing.step(self._saves.is_busy)
        is_over = self._last_batch + 1 == len(self.batches)
        self._between(waits_for_epoch=is_over)

    def epoch_ends(self):
        """The batches of an epoch and what the script does after them are done."""
        self.epoch, self.position = self.epoch + 1, 0
        is_last = self.epoch >= self.epochs or self.must_stop
        if not self._between(is_last=is_last) and is_last:
            self.save(waits=True)

    def _between(self, *, waits_for_epoch=False, is_last=False):
        """Save if any worker wants it, and end if one was told to; whether a save was begun."""
        self._hear_of_saves()
        wishes = [*self._notices.wishes(), self._is_due()]
        must_end, must_save, is_due = self._agree(wishes) if self._agree else wishes
        if not must_end and (waits_for_epoch or not (must_save or is_due)):
            return False
        self._notices.must_save = False
        self.save(waits=bool(must_end or is_last))
        if must_end:
            self._end()
        return True

    def save(self, *, waits):
        """Save the state of now; on several workers all read it, and the first one writes."""
        self._saves.join()
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        began_s = time.perf_counter()
        state = state_of(self.model)
        blocked_s = time.perf_counter() - began_s
        self._saved_step = self.step
        self._timing.saved()
        if self.is_first:
            self._saves.save(state, self._facts(), blocked_s, waits=waits)
        if waits:
            self._hear_of_saves()

    def _facts(self):
        return {
            "version": VERSION,
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.batches.seed,
            "global_batch": self.batches.batch_size,
            "num_samples": len(self.batches.samples),
            "replicas": self.place.replicas,
            "is_stopped": self.must_stop and self.position == 0,
            "timing": self._timing.last,
            "keras": "%s on %s" % (keras.__version__, keras.backend.backend()),
        }

    def _check_alike(self, body):
        """Refuse a save of another format or other data, and keep its seed."""
        check_format(self._found[0], body, VERSION)
        check_count(body, len(self.batches.samples))
        self.batches.seed = body["seed"]

    def _say_from_where(self, directory, body, callbacks):
        was, now = body["replicas"], self.place.replicas
        changed = "" if was == now else "; made on %d devices, now %d" % (was, now)
        where = (body["step"], body["epoch"], os.path.relpath(directory), changed)
        self.say("goes on after step %d (epoch %d) from %s%s" % where)
        fresh = sorted({type(one).__name__ for one in callbacks} - _STATELESS)
        if fresh:
            self.say("begins anew, as no save holds it: what %s has seen" % ", ".join(fresh))

    def close(self):
        """Give the folder and the signals back."""
        self._saves.close()
        self._notices.stop_listening()


class Between(keras.callbacks.Callback):
    """Tells a run of steps and epochs, after all other callbacks."""

    def __init__(self, run):
        super().__init__()
        self._run = run

    def on_epoch_begin(self, epoch, logs=None):
        """Take up what was saved."""
        self._run.epoch_begins(epoch)

    def on_train_batch_end(self, batch, logs=None):
        """A step is whole."""
        self._run.step_ends(batch)

    def on_epoch_end(self, epoch, logs=None):
        """An epoch is whole."""
        self._run.epoch_ends()
