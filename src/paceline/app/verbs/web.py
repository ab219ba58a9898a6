"""``paceline web``: a page on this machine to plan, compare and watch in a browser."""

from __future__ import annotations

from typing import Annotated

from paceline.app import options as common
from paceline.app.command_line import Option
from paceline.app.output import to_json


def web(
    port: Annotated[int, Option(help="Port on 127.0.0.1; any free one if 0.")] = 0,
    open_page: Annotated[
        bool, Option(help="Open the page in the browser.", flags=("--open",))
    ] = False,
    runs: common.Runs = None,
    python: common.Python = None,
    facts: common.Facts = (),
    calibration: common.Calibration = None,
    as_of: common.AsOf = None,
    is_json: common.Json = False,
) -> None:
    """Serve a page on this machine: search a model, move the goal, see plans and runs.

    Only this machine reaches it, with the token of the address that is printed. It fetches nothing
    from elsewhere. Ctrl-C ends it.
    """
    from paceline.app.web.serving import web as serve_page

    def ready(url: str) -> None:
        """Say where the page is, and open it if wanted."""
        text = to_json({"url": url}, kind="web") if is_json else f"{url}\nCtrl-C ends it"
        print(text, flush=True)
        if open_page:
            import webbrowser

            webbrowser.open(url)

    serve_page(
        port=port, runs=runs, python=python, facts=facts, calibration=calibration,
        as_of=as_of, on_ready=ready,
    )  # fmt: skip
