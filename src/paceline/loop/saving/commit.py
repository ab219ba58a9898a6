"""The commit of a save: a directory with ``complete.json`` is a save; one without is none.

``complete.json`` lists every file with its size and sha256 and carries its own digest. It is
written last, synced, and moved into place. Removing a save takes it away first.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil

from paceline.loop.errors import LoopError
from paceline.loop.saving.values import sealed, unsealed

COMMIT_FILE = "complete.json"
_LOCK_FILE = "in-use"
_PREFIX = "step-"
_PIECE_BYTES = 1 << 22


def new_name(step):
    """A directory that no save had: a torn one of the same step is never written into.

    >>> new_name(120).startswith("step-00000120-")
    True
    """
    return "%s%08d-%s" % (_PREFIX, step, os.urandom(3).hex())


def digest_of(path):
    """Size and sha256 of a file."""
    found, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        piece = file.read(_PIECE_BYTES)
        while piece:
            found.update(piece)
            size += len(piece)
            piece = file.read(_PIECE_BYTES)
    return [size, found.hexdigest()]


def write_commit(directory, body):
    """Make a directory a save.

    Args:
        directory: With all its files written and synced.
        body: What the save says of itself; ``files`` maps names to sizes and digests.
    """
    temporary = os.path.join(directory, COMMIT_FILE + ".part")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(sealed(body))
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)
    os.rename(temporary, os.path.join(directory, COMMIT_FILE))
    sync_directory(directory)
    sync_directory(os.path.dirname(directory))


def sync_directory(path):
    """Have the names in a directory reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def committed(folder):
    """Names of all saves, the newest first; torn directories are none."""
    if not os.path.isdir(folder):
        return []
    names = [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    found = [n for n in names if os.path.lexists(os.path.join(folder, n, COMMIT_FILE))]
    return sorted(found, key=lambda name: (name[:-7], _written_at(folder, name)), reverse=True)


def _written_at(folder, name):
    try:
        return os.stat(os.path.join(folder, name, COMMIT_FILE)).st_mtime_ns
    except OSError:
        return 0


def read_commit(directory):
    """What a save says of itself, and what is wrong with its list of files, or None.

    A digest is not looked at: see `damage`.
    """
    try:
        with open(os.path.join(directory, COMMIT_FILE), encoding="utf-8", newline="") as file:
            body = unsealed(file.read())
    except (OSError, UnicodeDecodeError):
        body = None
    if body is None:
        return None, "%s is damaged" % COMMIT_FILE
    present = set(os.listdir(directory)) - {COMMIT_FILE, COMMIT_FILE + ".part"}
    missing, unknown = sorted(set(body["files"]) - present), sorted(present - set(body["files"]))
    if missing:
        return body, "%s is missing" % missing[0]
    if unknown:
        return body, "%s does not belong to it" % unknown[0]
    return body, None


def damage(directory, files):
    """What is wrong with files of a save; None if nothing.

    ``files``: names with sizes and digests: all, or the share that this rank verifies.
    """
    for name, (size, digest) in sorted(files.items()):
        path = os.path.join(directory, name)
        try:
            if os.path.getsize(path) != size:
                return "%s has %d bytes, not %d" % (name, os.path.getsize(path), size)
            if digest_of(path) != [size, digest]:
                return "%s is damaged: its sha256 is another one" % name
        except OSError as error:
            return "%s cannot be read: %s" % (name, error.strerror)
    return None


def newest(folder, names, check, say):
    """Directory and content of the newest save that is whole; None without any save.

    Args:
        folder: Of all saves.
        names: Of those that are committed, the newest first.
        check: From a directory to what a save says of itself, and what is wrong with it or None.
        say: Prints a line about one that is refused.

    Raises:
        LoopError: There are saves, and all of them are damaged.
    """
    for name in names:
        directory = os.path.join(folder, name)
        body, problem = check(directory)
        if problem is None:
            return directory, body
        say("the save %s is refused: %s" % (directory, problem))
    if names:
        raise LoopError(
            "none of the %d saves in `%s` is whole" % (len(names), folder),
            hint="remove the folder to begin anew, or put the files back",
        )
    return None


def remove_save(directory):
    """Remove a save, or what is left of one: from then on it does not exist."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, COMMIT_FILE))
    shutil.rmtree(directory, ignore_errors=True)


def remove_torn(folder):
    """Remove directories that never became saves."""
    whole = set(committed(folder))
    for name in os.listdir(folder):
        if name.startswith(_PREFIX) and name not in whole:
            remove_save(os.path.join(folder, name))


def remove_older(folder, keep):
    """Remove all saves but the newest ones."""
    for name in committed(folder)[keep:]:
        remove_save(os.path.join(folder, name))


def lock(folder):
    """Keep other runs out of a folder until this process ends, however it ends.

    Returns:
        The file descriptor that holds the lock.

    Raises:
        LoopError: Another run saves into it, or it cannot be written.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        held = os.open(os.path.join(folder, _LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LoopError(
            "`%s` cannot be written: %s" % (folder, error.strerror),
            hint="name another folder for the saves: `loop.resume(…, folder=…)`",
        ) from None
    try:
        # POSIX locks are not inherited: a loader's worker that outlives a kill holds nothing.
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise LoopError(
            "another run saves into `%s`" % folder,
            hint="end it first, or name another folder: `loop.resume(…, folder=…)`",
        ) from None
    except OSError:
        pass  # A file system without locks: nothing can be said of other runs.
    return held
