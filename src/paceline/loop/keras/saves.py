"""Saves of a Keras model in safetensors, written beside the training and committed last."""

import os
import time
from collections import Counter

import numpy as np

from paceline.loop.errors import LoopError
from paceline.loop.saving import commit
from paceline.loop.saving.background import BackgroundSaves
from paceline.loop.saving.timing import Outcome

_FILE = "state.safetensors"


class Saves(BackgroundSaves):
    """The saves of a run in a folder.

    Args:
        folder: Of all its saves; every worker sees it.
        is_writer: Whether this process writes them.
        keep: How many are kept.
        say: Prints a line.
    """

    def __init__(self, folder, *, is_writer, keep, say):
        _check_library()
        super().__init__(folder, keep=keep, say=say)
        if is_writer:
            self._lock = commit.lock(self.folder)
            commit.remove_torn(self.folder)

    def newest(self):
        """Directory and content of the newest save that is whole; None without any save."""
        return commit.newest(self.folder, commit.committed(self.folder), _checked, self.say)

    def save(self, state, facts, blocked_s, *, waits):
        """Begin a save of arrays that nobody else changes.

        Args:
            state: The arrays by name.
            facts: What else the save says of itself; ``step`` is one.
            blocked_s: What the training waited for them.
            waits: Return when it is committed.
        """
        self._begin(self._write, state, facts, blocked_s)
        if waits:
            self.join()

    def _write(self, state, facts, blocked_s):
        from safetensors.numpy import save_file

        began_s = time.perf_counter()
        name, problem = commit.new_name(facts["step"]), None
        directory = os.path.join(self.folder, name)
        path = os.path.join(directory, _FILE)
        try:
            os.makedirs(directory)
            save_file(state, path)
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            commit.write_commit(directory, dict(facts, files={_FILE: commit.digest_of(path)}))
            commit.remove_older(self.folder, self.keep)
        except Exception as error:  # noqa: BLE001  Said, and the training goes on.
            problem = "%s: %s" % (type(error).__name__, error)
            commit.remove_save(directory)
        save_s = time.perf_counter() - began_s + blocked_s
        self.outcome = Outcome(name, facts["step"], blocked_s, save_s, problem)


def read(directory):
    """The arrays of a save, by name."""
    from safetensors.numpy import load_file

    return load_file(os.path.join(directory, _FILE))


def state_of(model):
    """Copies of everything that training changes in a model, by the paths that Keras gives."""
    found = {}
    for kind, variables in _groups(model).items():
        for one in variables:
            found["%s/%s" % (kind, one.path)] = np.array(one.numpy())
    return found


def put_back(model, state):
    """Give a model its state again.

    Raises:
        LoopError: It is that of another model or optimizer.
    """
    own = {
        "%s/%s" % (kind, one.path): one
        for kind, variables in _groups(model).items()
        for one in variables
    }
    _compare(own, state)
    for name, variable in own.items():
        variable.assign(state[name])


def _groups(model):
    """Variables by what they are for.

    Raises:
        LoopError: Two have one path, so that a save could not tell them apart.
    """
    groups = {
        "weights": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    for kind, variables in groups.items():
        counted = Counter(one.path for one in variables)
        for path, count in counted.items():
            if count > 1:
                raise LoopError(
                    "%d of the %s are called `%s`" % (count, kind, path),
                    "give layers names of their own",
                )
    return groups


def _compare(own, saved):
    for names, where in ((set(own) - set(saved), "not in"), (set(saved) - set(own), "only in")):
        if names:
            raise LoopError(
                "the save is of something else: `%s` is %s it" % (sorted(names)[0], where),
                "build everything as it was, or save into another folder (`folder=`)",
            )
    for name, variable in own.items():
        if tuple(variable.shape) != saved[name].shape:
            raise LoopError(
                "`%s` has shape %s; the save has %s"
                % (name, tuple(variable.shape), saved[name].shape),
                "build the model as it was, or save into another folder (`folder=`)",
            )


def _checked(directory):
    body, problem = commit.read_commit(directory)
    return body, problem or commit.damage(directory, body["files"])


def _check_library():
    try:
        import safetensors  # noqa: F401
    except ImportError:
        raise LoopError(
            "saves need the package safetensors", hint="pip install safetensors"
        ) from None
