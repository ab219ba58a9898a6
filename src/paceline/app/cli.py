"""The command line: finds the verb, loads only what it needs, and turns failures into messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from paceline.errors import InvalidInputError, PacelineError, UnknownNameError, WorkerError

if TYPE_CHECKING:
    import typer

#: Where each verb lives. Only the module of the verb that was typed is imported.
VERBS: Mapping[str, str] = {
    "plan": "paceline.app.plan_cli",
    "predict": "paceline.app.predict_cli",
    "trace": "paceline.app.trace_cli",
    "scale": "paceline.app.scale_cli",
    "devices": "paceline.app.catalog_cli",
    "offers": "paceline.app.catalog_cli",
    "stack": "paceline.app.stack_cli",
    "deploy": "paceline.app.deploy_cli",
    "doctor": "paceline.app.measure_cli",
    "measure": "paceline.app.measure_cli",
    "compare": "paceline.app.measure_cli",
    "report": "paceline.app.measure_cli",
    "calibrate": "paceline.app.measure_cli",
    "score": "paceline.app.score_cli",
}

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_HELP = "Know which accelerator a deep-learning job needs before anything is rented."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status.

    A `PacelineError` becomes a message with a hint and its own status. Anything else that is
    raised is a bug of paceline and shows its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except PacelineError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def build_app(verbs: Sequence[str] | None = None) -> typer.Typer:
    """The command line with the given verbs, or with all of them."""
    import typer

    app = typer.Typer(
        help=_HELP,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    # A callback keeps typer from promoting a lone command to the whole program.
    app.callback()(_root)
    wanted = VERBS if verbs is None else verbs
    for module in dict.fromkeys(VERBS[verb] for verb in wanted):
        import_module(module).register(app)
    return app


def _root() -> None:
    """Know which accelerator a deep-learning job needs before anything is rented."""


def _run(arguments: list[str]) -> int:
    if not arguments:
        from paceline.app.home import home_text

        print(home_text())
        return 0
    verb = arguments[0]
    if verb in ("--version", "-V"):
        from paceline import __version__

        print(f"paceline {__version__}")
        return 0
    if verb.startswith("-"):
        return _invoke(arguments, None)
    if verb not in VERBS:
        raise UnknownNameError.from_name("command", verb, VERBS, command="paceline --help")
    return _invoke(arguments, (verb,))


def _invoke(arguments: list[str], verbs: Sequence[str] | None) -> int:
    import typer

    try:
        status = typer.main.get_command(build_app(verbs)).main(
            arguments, prog_name="paceline", standalone_mode=False
        )
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        raise _usage_error(error, arguments[0]) from None
    return status if isinstance(status, int) else 0


def _usage_error(error: Exception, verb: str) -> InvalidInputError:
    form = getattr(error, "format_message", None)
    text = (form() if form else str(error)).strip().rstrip(".")
    command = "paceline" if verb.startswith("-") else f"paceline {verb}"
    return InvalidInputError(
        text[:1].lower() + text[1:], hint=f"`{command} --help` lists what it takes"
    )


def _print_error(error: PacelineError) -> None:
    details = error.details.rstrip() if isinstance(error, WorkerError) else ""
    if details:
        print(details, file=sys.stderr)
    print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
