"""The settings of a model in a ``.keras`` file. Standard library only.

Such a file is a zip with ``config.json``, ``metadata.json`` and weights. Only the first is read,
within bounds; nothing is unpacked, and no class or function that it names is looked up by import.
"""

import json
import zipfile
import zlib

from torch_entries.request_errors import RequestError

MOST_BYTES = 64_000_000
_MOST_DEEP, _MOST_VALUES = 200, 8_000_000


def read_settings(path):
    """What ``config.json`` of the file says.

    Raises:
        RequestError: Missing, no such file, or larger than a model's settings are.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open("config.json") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _bad(path, error.strerror or "it cannot be read") from None
    except KeyError:
        raise _bad(path, "it holds no `config.json`, as `model.save` writes it") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError,
            NotImplementedError, OverflowError) as error:  # fmt: skip
        raise _bad(path, "it is no whole zip file (%.200s)" % error) from None
    if len(text) > MOST_BYTES:
        raise _bad(path, "its settings take more than %d MB" % (MOST_BYTES // 10**6))
    return parsed(text, path)


def parsed(text, path):
    """Settings as JSON, no deeper and no larger than models have them."""
    try:
        settings = json.loads(text)
        _check(settings)
    except (ValueError, RecursionError) as error:
        reason = "are nested too deeply" if isinstance(error, RecursionError) else "are no JSON"
        raise _bad(path, "its settings %s" % reason) from None
    if not isinstance(settings, dict):
        raise _bad(path, "its settings are no model")
    return settings


def _check(settings):
    """Bounds of what is walked later; ``RecursionError`` where it is deeper."""
    todo, seen = [(settings, 0)], 0
    while todo:
        value, depth = todo.pop()
        seen += 1
        if depth > _MOST_DEEP:
            raise RecursionError
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise ValueError("infinite")
        if seen > _MOST_VALUES:
            raise ValueError("too large")
        if isinstance(value, dict):
            todo += [(one, depth + 1) for one in value.values()]
        elif isinstance(value, list):
            todo += [(one, depth + 1) for one in value]


def _bad(path, reason):
    return RequestError("bad-keras", "`%s` cannot be read: %s" % (path, reason))
