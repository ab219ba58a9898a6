"""What a script saves in a throwaway run goes into a folder that is deleted after it.

Standard library only; runs in the user's Python. Files that the script opens itself for writing,
and what ``torch.save`` and safetensors write, are put there; deleting what was there before does
nothing.
"""

import builtins
import io
import os
import sys
import tempfile

import _paceline_observer as observer

_WRITING = frozenset("wax+")


def install(folder):
    """Put the redirection in; it begins to act at once."""
    scratch = Scratch(os.path.join(folder, "scratch"))
    os.makedirs(scratch.folder, exist_ok=True)
    scratch.redirect_open()
    scratch.redirect_changes()
    sys.meta_path.insert(0, observer._AfterImport({"safetensors.torch": scratch.safetensors}))
    scratch.torch()
    return scratch


class Scratch:
    """Where files went in the place of their own.

    Attributes:
        num_saves: Calls that saved a model or its state.
        is_saving: Whether saves do anything.
    """

    def __init__(self, folder):
        self.folder = folder
        self.moved = {}
        self.num_saves = 0
        self.is_saving = True
        self.plain_open = builtins.open
        own = os.path.dirname(folder)
        self.safe = [os.path.realpath(p) for p in (tempfile.gettempdir(), "/dev", "/proc", own)]

    def path_of(self, path):
        """Where something is written that was meant for a path; the path itself where it may be."""
        try:
            real = os.path.abspath(os.fspath(path))
        except TypeError:
            return path
        if isinstance(real, bytes):
            return path
        if any(real.startswith(one + os.sep) for one in self._passed()):
            return path
        if real not in self.moved:
            name = "%d-%d-%s" % (os.getpid(), len(self.moved), os.path.basename(real))
            self.moved[real] = os.path.join(self.folder, name)
        return self.moved[real]

    def _passed(self):
        return self.safe[1:]

    def found(self, path):
        """Where something is read from: what was written in its place, if it was."""
        try:
            return self.moved.get(os.path.abspath(os.fspath(path)), path)
        except TypeError:
            return path

    def redirect_open(self):
        """``open`` writes into the folder, and reads what it wrote from there."""
        plain = self.plain_open

        def opened(file, mode="r", *args, **kwargs):
            """Open a file to write it in the folder, and to read it where it was last written."""
            if isinstance(file, (str, os.PathLike)):
                if _WRITING & set(mode):
                    kept = self.path_of(file)
                    if ("a" in mode or "r" in mode) and kept != file and os.path.exists(file):
                        _copy(plain, file, kept)
                    file = kept
                else:
                    file = self.found(file)
            return plain(file, mode, *args, **kwargs)

        builtins.open = io.open = opened

    def redirect_changes(self):
        """Renaming moves what is in the folder; deleting leaves what was there before."""

        def moving(plain):
            """A function that renames within the folder."""

            def moved(source, target, *args, **kwargs):
                kept = self.found(source)
                if kept is source:
                    return plain(source, target, *args, **kwargs)
                return plain(kept, self.path_of(target))

            return moved

        def deleting(plain):
            """A function that deletes what the script made, and leaves what was there before."""

            def deleted(path, *args, **kwargs):
                kept = self.found(path)
                if kept is not path:
                    return plain(kept)
                if self._may_go(path, kwargs):
                    return plain(path, *args, **kwargs)
                return None

            return deleted

        os.rename, os.replace = moving(os.rename), moving(os.replace)
        os.remove, os.unlink = deleting(os.remove), deleting(os.unlink)

    def _may_go(self, path, kwargs):
        if kwargs.get("dir_fd") is not None or not isinstance(path, (str, os.PathLike)):
            return True
        real = os.path.realpath(path)
        return any(real.startswith(one + os.sep) for one in self.safe)

    def torch(self):
        """``torch.save`` writes into the folder."""
        import torch

        plain = torch.save

        def save(obj, f, *args, **kwargs):
            """``torch.save``, into the folder."""
            if isinstance(f, (str, os.PathLike)):
                f = self.path_of(f)
            return self._saved(plain, obj, f, *args, **kwargs)

        torch.save = torch.serialization.save = save
        plain_load = torch.load

        def load(f, *args, **kwargs):
            return plain_load(self.found(f), *args, **kwargs)

        torch.load = torch.serialization.load = load

    def safetensors(self):
        """``save_file`` of safetensors writes into the folder."""
        module = sys.modules["safetensors.torch"]
        plain = module.save_file

        def save_file(tensors, filename, *args, **kwargs):
            return self._saved(plain, tensors, self.path_of(filename), *args, **kwargs)

        module.save_file = save_file

    def _saved(self, plain, *args, **kwargs):
        try:
            return plain(*args, **kwargs) if self.is_saving else None
        finally:
            self.num_saves += 1


def _copy(plain, source, target):
    with plain(source, "rb") as read, plain(target, "wb") as written:
        written.write(read.read())
