"""The public function that serves the local page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.app.requests.words import read_day
from paceline.errors import InvalidInputError

_MOST_PORT = 65_535
#: What the page needs beside the core, by the name under which it is imported.
_NEEDED = ("starlette", "uvicorn", "jinja2")


def web(
    *,
    port: int = 0,
    runs: Path | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    as_of: str | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a page on this machine to plan, compare and watch in a browser; ends when interrupted.

    Only this machine reaches it, with the token of its address; it fetches nothing.

    Args:
        port: On 127.0.0.1; any free one if 0.
        runs: Folder of all runs; the user's own if None.
        python: The Python that has the framework of models that are traced; found if None.
        facts: Files with your own devices, offers and machines.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        as_of: Day on which prices are judged; today if None.
        on_ready: Called with the page's address once it can be opened; printed if None.

    Raises:
        InvalidInputError: A library is missing, or the port is taken.
    """
    _check_installed()
    if not 0 <= port <= _MOST_PORT:
        raise InvalidInputError(f"there is no port {port}", hint=f"take 1024 to {_MOST_PORT}")
    if as_of is not None:
        read_day(as_of)
    from paceline.app.web.answers import Facts
    from paceline.app.web.server import serve
    from paceline.catalog.load import load_catalog

    load_catalog(tuple(facts))
    given = Facts(
        facts=tuple(facts), calibration=calibration, python=python, as_of=as_of, runs=runs
    )
    serve(given, port=port, on_ready=on_ready or print)


def _check_installed() -> None:
    from importlib.util import find_spec

    for name in (*_NEEDED, "vl_convert"):
        if find_spec(name) is None:
            raise InvalidInputError(f"the page needs {name}", hint="`pip install 'paceline[web]'`")
