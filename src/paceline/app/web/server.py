"""The local page, served on loopback until it is ended."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from paceline.app.web.answers import Answers, Facts
from paceline.app.web.bundle import Bundle
from paceline.app.web.guard import Address, Guard, new_token
from paceline.app.web.uploads import Uploads
from paceline.app.web.views import Views
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LOOPBACK = "127.0.0.1"
_NUM_WAITING = 64


def build(address: Address, facts: Facts, folder: Path, bundle: Bundle) -> ASGIApp:
    """The page behind its guard.

    Args:
        address: Where it is.
        facts: What questions are answered with.
        folder: For models that are dropped.
        bundle: What draws charts.
    """
    uploads = Uploads(folder)
    views = Views(answers=Answers(facts, uploads), facts=facts, uploads=uploads, bundle=bundle)
    return Guard(Starlette(routes=views.routes()), address=address)


def serve(facts: Facts, *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted.

    Args:
        facts: What questions are answered with.
        port: On loopback; any free one if 0.
        on_ready: Called with the address once it can be opened.

    Raises:
        InvalidInputError: The port is taken.
    """
    import uvicorn

    listening = _listen(port)
    bundle = Bundle()
    address = Address(port=listening.getsockname()[1], token=new_token())
    with listening, tempfile.TemporaryDirectory(prefix="paceline-web-") as folder:
        config = uvicorn.Config(
            build(address, facts, Path(folder), bundle), log_level="warning", access_log=False,
            server_header=False, lifespan="off", limit_concurrency=200, timeout_keep_alive=20,
        )  # fmt: skip
        on_ready(address.url)
        threading.Thread(target=_prepare, args=(bundle,), daemon=True).start()
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidInputError(
            f"port {port} of {_LOOPBACK} cannot be used: {error}",
            hint="leave --port out: any free one is taken",
        ) from None
    listening.listen(_NUM_WAITING)
    return listening


def _prepare(bundle: Bundle) -> None:
    """Load what the first answer needs while the reader looks at the page."""
    from paceline.catalog.load import load_catalog
    from paceline.model.names.registry import known_models
    from paceline.planning import planner
    from paceline.prediction.calibration.fitted import builtin_calibration

    assert planner
    load_catalog(())
    builtin_calibration()
    known_models()
    bundle.begin()
