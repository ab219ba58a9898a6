"""Models that were dropped on the local page: kept in a folder of its own until the page ends."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from paceline.app.web.query import UPLOADED
from paceline.errors import InvalidInputError, UnknownNameError

#: How a file of each kind is named as a model. None of them is run, and none is a pickle.
_ENTRIES: Mapping[str, str] = {".npz": "{path}", ".json": "hf:{path}"}
_LETTERS = re.compile(r"[^\w.-]+")
_MOST_KEPT = 20


class Uploads:
    """Files by the name that each was given; the oldest goes where there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}

    def keep(self, filename: str, data: bytes) -> str:
        """Keep a file; returns how it is named as a model.

        Raises:
            InvalidInputError: Another kind of file.
        """
        title = _LETTERS.sub("-", Path(filename).name)[-60:]
        ending = Path(title).suffix.lower()
        if ending not in _ENTRIES:
            raise InvalidInputError(
                f"`{title}` is no model that can be dropped",
                hint=f"drop a config.json, or a file that `paceline trace --save` wrote (.npz): "
                f"{' or '.join(_ENTRIES)}",
            )
        name = f"{UPLOADED}{secrets.token_hex(4)}-{title}"
        self._path(name).write_bytes(data)
        self._names[name] = title
        while len(self._names) > _MOST_KEPT:
            oldest = next(iter(self._names))
            self._path(oldest).unlink(missing_ok=True)
            del self._names[oldest]
        return name

    def entry(self, name: str) -> str:
        """What `paceline.plan` calls the model.

        Raises:
            UnknownNameError: Nothing of that name was dropped.
        """
        if name not in self._names:
            raise UnknownNameError(
                f"no file `{name.removeprefix(UPLOADED)}` was dropped on this page",
                hint="drop it again: they go when the page ends",
            )
        path = self._path(name)
        return _ENTRIES[path.suffix.lower()].format(path=path)

    def title(self, model: str) -> str:
        """What a model is called on the command line: the name of the file, or its own."""
        return self._names.get(model, model)

    def _path(self, name: str) -> Path:
        return self._folder / name.removeprefix(UPLOADED)
