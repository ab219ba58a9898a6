"""Models that were dropped on the local page: kept in a folder of its own until the page ends."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

from paceline.app.web.query import UPLOADED
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.writing import make_folder

_LETTERS = re.compile(r"[^\w.-]+")
_MOST_KEPT = 20


def endings() -> tuple[str, ...]:
    """Of files that can be dropped: a `config.json`, a traced graph, whatever is only read."""
    from paceline.model.names.front_ends import FRONT_ENDS, front_ends

    return (".json", ".npz", *(e for one in front_ends(FRONT_ENDS) for e in one.only_read))


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
        if ending not in endings():
            raise InvalidInputError(
                f"`{title}` is no model that can be dropped",
                hint="drop a config.json, a file that `paceline trace --save` wrote (.npz), or "
                + ", ".join(endings()[2:]),
            )
        name = f"{UPLOADED}{secrets.token_hex(4)}-{title}"
        self._names[name] = title
        make_folder(self._path(name).parent)
        self._path(name).write_bytes(data)
        while len(self._names) > _MOST_KEPT:
            oldest = next(iter(self._names))
            shutil.rmtree(self._path(oldest).parent, ignore_errors=True)
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
        return f"hf:{path}" if path.suffix.lower() == ".json" else str(path)

    def title(self, model: str) -> str:
        """What a model is called on the command line: the name of the file, or its own."""
        return self._names.get(model, model)

    def _path(self, name: str) -> Path:
        """A folder for each, so that the model has the name that its file had."""
        number = name.removeprefix(UPLOADED).partition("-")[0]
        return self._folder / number / self._names[name]
