"""Saves written beside the training, by PyTorch's distributed checkpoint in safetensors.

The state is copied (all that the training waits for), then a thread writes, syncs and digests it;
when all ranks are done, rank 0 commits. What fails leaves the saves before as they are.
"""

import os
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from paceline.loop.errors import LoopError
from paceline.loop.saving import commit
from paceline.loop.saving.background import BackgroundSaves
from paceline.loop.saving.states import merged
from paceline.loop.saving.timing import Outcome


class Checkpoints(BackgroundSaves):
    """The saves of a run in a folder.

    Args:
        folder: Of all its saves; every rank sees it.
        ranks: From `connected`.
        keep: How many saves are kept.
        say: Prints a line.
    """

    def __init__(self, folder, ranks, *, keep, say):
        super().__init__(folder, keep=keep, say=say)
        self.ranks = ranks
        self._buffers = {}
        self._differing = None
        self._lock = self._locked()

    def _locked(self):
        """Take the folder: rank 0 for all."""
        held, problem = None, None
        if self.ranks.rank == 0:
            try:
                _check_engine()
                held = commit.lock(self.folder)
                commit.remove_torn(self.folder)
            except LoopError as error:
                problem = [error.message, error.hint]
        problem = self.ranks.from_first(problem)
        if problem:
            raise LoopError(problem[0], hint=problem[1])
        if not all(self.ranks.gather(os.path.isdir(self.folder))):
            raise LoopError(
                "`%s` is not there on every rank" % self.folder,
                hint="name a folder on a file system that all machines share",
            )
        return held

    def newest(self):
        """Directory and content of the newest save that is whole; None without any save.

        Raises:
            LoopError: There are saves, and all of them are damaged.
        """
        names = self.ranks.from_first(commit.committed(self.folder))
        return commit.newest(self.folder, names, self._checked, self.say)

    def _checked(self, directory):
        """What a save says of itself, and what any rank finds wrong with its share of the files."""
        body, problem = commit.read_commit(directory)
        if problem is None:
            mine = sorted(body["files"])[self.ranks.rank :: self.ranks.count]
            problem = commit.damage(directory, {one: body["files"][one] for one in mine})
        return body, next((one for one in self.ranks.gather(problem) if one), None)

    def read(self, directory, tensors):
        """Fill tensors from a save, in place, whatever it was sharded over."""
        reader = dcp.HuggingFaceStorageReader(directory)
        if not tensors and self.ranks.count == 1:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(
                tensors,
                storage_reader=reader,
                process_group=self.ranks.save_group,
                no_dist=self.ranks.count == 1,
            )

    def save(self, tensors, tree, facts, *, waits=False):
        """Begin a save; the training may change the tensors once this returns.

        Args:
            tensors: By name, as the training uses them.
            tree: What is no tensor, of this rank.
            facts: What else the save says of itself; ``step`` is one. Those of rank 0 count, but
                ``rng``, which is kept of each rank.
            waits: Return when it is committed.
        """
        self.join()
        began_s = time.perf_counter()
        staged = self._staged(tensors)
        blocked_s = time.perf_counter() - began_s
        self._begin(self._write, staged, tree, facts, blocked_s)
        if waits:
            self.join()

    def join(self):
        """Wait until no save is being written, and say what ranks did not agree on."""
        has_waited = super().join()
        if has_waited and self._differing:
            self.say("differs between ranks, rank 0's is kept: %s" % ", ".join(self._differing))
            self._differing = []
        return has_waited

    def _staged(self, tensors):
        """Copies on the CPU, in buffers that are kept for the next save."""
        staged, is_late = {}, False
        for name, tensor in tensors.items():
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            room = self._buffers.get(name)
            if room is None or room.shape != local.shape or room.dtype != local.dtype:
                pinned = local.is_cuda
                room = torch.empty(local.shape, dtype=local.dtype, device="cpu", pin_memory=pinned)
                self._buffers[name] = room
            room.copy_(local, non_blocking=local.is_cuda)
            is_late = is_late or local.is_cuda
            staged[name] = _placed(room, tensor)
        if is_late:
            torch.cuda.synchronize()
        return staged

    def _write(self, staged, tree, facts, blocked_s):
        """Write, sync, digest and commit; runs in a thread on every rank."""
        began_s = time.perf_counter()
        group = self.ranks.save_group
        name, problem = None, None
        try:
            name = self.ranks.from_first(commit.new_name(facts["step"]), group)
            directory = os.path.join(self.folder, name)
            files, problem = self._files(directory, staged)
            parts = self.ranks.gather([files, problem, tree, facts["rng"]], group)
            problem = next((part[1] for part in parts if part[1]), None)
            if self.ranks.rank == 0 and problem is None:
                problem = self._commit(directory, parts, facts)
            problem = self.ranks.from_first(problem, group)
            if problem and self.ranks.rank == 0:
                commit.remove_save(directory)
        except Exception as error:  # noqa: BLE001  A rank is gone: the training finds out itself.
            problem = "%s: %s" % (type(error).__name__, error)
        save_s = time.perf_counter() - began_s + blocked_s
        self.outcome = Outcome(name, facts["step"], blocked_s, save_s, problem)

    def _files(self, directory, staged):
        """Write this rank's shard; its file with digest, or what went wrong."""
        try:
            os.makedirs(directory, exist_ok=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp.save(
                    staged,
                    storage_writer=dcp.HuggingFaceStorageWriter(directory, save_distributed=True),
                    process_group=self.ranks.save_group,
                    no_dist=self.ranks.count == 1,
                )
            mine = "shard-%05d-" % (self.ranks.rank + 1)
            names = [one for one in os.listdir(directory) if one.startswith(mine)]
            return {one: commit.digest_of(os.path.join(directory, one)) for one in names}, None
        except Exception as error:  # noqa: BLE001  Said, and the training goes on.
            return {}, _reason(error)
        except BaseException as error:
            # CheckpointException is no Exception.
            if type(error).__name__ != "CheckpointException":
                raise
            return {}, _reason(error)

    def _commit(self, directory, parts, facts):
        """Commit and remove what is older; what went wrong, or None."""
        differing = []
        body = dict(
            facts,
            rng=[part[3] for part in parts],
            tree=merged([part[2] for part in parts], differing),
            files={name: found for part in parts for name, found in part[0].items()},
        )
        if self._differing is None:
            self._differing = differing
        try:
            commit.write_commit(directory, body)
            commit.remove_older(self.folder, self.keep)
        except OSError as error:
            return "%s: %s" % (error.filename or directory, error.strerror)
        return None


def _placed(local, tensor):
    """A copy that is sharded as the tensor is."""
    if not hasattr(tensor, "to_local"):
        return local
    from torch.distributed.tensor import DTensor

    # `from_local` would move the copy back to the mesh's device.
    return DTensor(local, tensor._spec, requires_grad=False)


def _reason(error):
    """One line of an error, the innermost that has a text."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, (inner, _trace) = sorted(failures.items())[0]
        return "rank %d: %s" % (rank, _reason(inner))
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[-1] if text else "")


def _check_engine():
    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise LoopError(
            "PyTorch %s cannot save in safetensors" % torch.__version__,
            hint="install PyTorch 2.8 or newer: pip install -U torch",
        )
    try:
        import safetensors  # noqa: F401
    except ImportError:
        raise LoopError(
            "saves need the package safetensors", hint="pip install 'paceline[loop]'"
        ) from None
    if not dist.is_available():
        raise LoopError(
            "this PyTorch was built without torch.distributed", hint="install one from pytorch.org"
        )
