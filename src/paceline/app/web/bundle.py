"""The script that draws charts, made once for a release of what draws and kept in the user's cache.

Making it takes seconds and as much memory as a browser tab, so a process of its own does it while
the page is already open.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.reporting.charts import drawing
from paceline.writing import make_folder, user_folder, write_whole

_MAKE = (
    "import sys; from paceline.reporting.charts.drawing import drawing_script; "
    "sys.stdout.reconfigure(encoding='utf-8'); sys.stdout.write(drawing_script())"
)
_PATIENCE_S = 120.0


class Bundle:
    """The script, packed; it is made once it is asked for, or begun."""

    def __init__(self) -> None:
        self._is_there = threading.Event()
        self._packed = b""
        self._begun = threading.Lock()

    def begin(self) -> None:
        """Have it made, while something else is done."""
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._make, daemon=True).start()

    def packed(self) -> bytes:
        """The script in gzip's format; empty where it could not be made."""
        self.begin()
        self._is_there.wait(_PATIENCE_S)
        return self._packed

    def text(self) -> str:
        """The script itself."""
        return gzip.decompress(self.packed() or gzip.compress(b"")).decode()

    def _make(self) -> None:
        try:
            path = _kept_at()
            if not path.is_file():
                _keep(path)
            self._packed = gzip.compress(path.read_bytes(), 6)
        except (OSError, subprocess.SubprocessError, InvalidInputError) as error:
            print(f"the page has no charts: {error}", file=sys.stderr)
        finally:
            self._is_there.set()


def _kept_at() -> Path:
    own = hashlib.sha256(Path(drawing.__file__).read_bytes()).hexdigest()[:12]
    return user_folder("cache", f"drawing-{version('vl-convert-python')}-{own}.js")


def _keep(path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", _MAKE], capture_output=True, check=True, timeout=_PATIENCE_S
    )
    make_folder(path.parent)
    write_whole(path, made.stdout.decode())
