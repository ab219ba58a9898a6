"""The command line: finds the verb, loads only what it needs, and turns failures into messages."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

from paceline.app.command_line import Call, Commands, read_call
from paceline.app.output import say
from paceline.errors import InvalidInputError, PacelineError, UnknownNameError, WorkerError

#: Where each verb lives, as the function of its name. Only the module of the verb that was typed is
#: imported.
VERBS: Mapping[str, str] = {
    "plan": "paceline.app.verbs.plan",
    "predict": "paceline.app.verbs.predict",
    "trace": "paceline.app.verbs.trace",
    "scale": "paceline.app.verbs.scale",
    "devices": "paceline.app.verbs.catalog",
    "offers": "paceline.app.verbs.catalog",
    "stack": "paceline.app.verbs.stack",
    "deploy": "paceline.app.verbs.deploy",
    "doctor": "paceline.app.verbs.measure",
    "measure": "paceline.app.verbs.measure",
    "compare": "paceline.app.verbs.measure",
    "stacks": "paceline.app.verbs.measure",
    "report": "paceline.app.verbs.report",
    "export": "paceline.app.verbs.report",
    "ceilings": "paceline.app.verbs.report",
    "own": "paceline.app.verbs.decisions",
    "fits": "paceline.app.verbs.decisions",
    "bill": "paceline.app.verbs.decisions",
    "pool": "paceline.app.verbs.decisions",
    "lifecycle": "paceline.app.verbs.lifecycle",
    "feed": "paceline.app.verbs.feeding",
    "infer": "paceline.app.verbs.feeding",
    "models": "paceline.app.verbs.models",
    "score": "paceline.app.verbs.score",
    "calibrate": "paceline.app.verbs.calibrate",
    "trials": "paceline.app.verbs.trials",
    "run": "paceline.app.verbs.run",
    "runs": "paceline.app.verbs.run",
    "diagnose": "paceline.app.verbs.diagnose",
    "train": "paceline.app.verbs.train",
    "web": "paceline.app.verbs.web",
}

#: Verbs by what a person wants, those that most people need first.
_WANTS = {
    "Plan a job": ("plan", "predict", "scale", "deploy", "report", "trace"),
    "Look something up": ("devices", "offers", "models", "stack"),
    "Rent, buy or share": ("bill", "own", "fits", "pool", "lifecycle"),
    "Train, run and watch": ("train", "run", "runs", "diagnose", "feed", "infer", "web"),
    "Measure, and hold predictions against it": (
        "measure", "stacks", "doctor", "ceilings", "compare", "export", "calibrate", "trials",
        "score",
    ),
}  # fmt: skip

#: Verbs that take a command after ``--``.
_WITH_COMMAND = frozenset({"run", "diagnose"})
#: Verbs that take a script after ``--`` in the place of a model.
_WITH_SCRIPT = frozenset({"plan", "predict", "trace"})

#: Verbs that compute.
_NUMERIC_VERBS = frozenset(
    {"plan", "predict", "trace", "scale", "lifecycle", "score", "calibrate", "trials", "web"}
)
_THREADS = "OPENBLAS_NUM_THREADS"

#: Objects made before those that refer to each other in a circle are looked for.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000

#: What the place that is written to refuses: no bug of ours.
_DISK_FAILURES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})
#: What no file can be named.
_NAME_FAILURES = frozenset({errno.ENAMETOOLONG, errno.ELOOP})

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_HELP = "Know which accelerator a deep-learning job needs before anything is rented."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status.

    A `PacelineError` becomes a message with a hint and its own status. Anything else that is
    raised is a bug of paceline and shows its traceback.

    Args:
        argv: The command; None takes that of the process, which then ends.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Commands keep nearly all that they make: a plan would look for garbage 2 to 4 % of its time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        own, command = _split(arguments)
        call = _read(own)
        asked = None if call is None else call.verb(**call.values, **command)
        if isinstance(asked, int):
            return asked
        if asked is not None:
            say(asked.verb(**asked.values), asked.form, asked.output)
        sys.stdout.flush()
        return 0
    except PacelineError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone.
        _forget_stdout()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno not in _DISK_FAILURES | _NAME_FAILURES:
            raise
        _forget_stdout()
        _print_error(_disk_error(error))
        return PacelineError.exit_code
    finally:
        if argv is None:
            # A process that ends would look for circles in all it made: a tenth of a short verb.
            gc.freeze()


def build_commands(verbs: Sequence[str] | None = None) -> Commands:
    """The command line with the given verbs, or with all of them."""
    commands = Commands("paceline", _HELP, _WANTS, build_commands)
    wanted = VERBS if verbs is None else verbs
    for home in dict.fromkeys(VERBS[verb] for verb in wanted):
        module = import_module(home)
        if hasattr(module, "register"):  # It has groups of verbs.
            module.register(commands)
            continue
        for verb in (verb for verb, place in VERBS.items() if place == home):
            commands.add_verb(verb, getattr(module, verb))
    return commands


def _split(arguments: list[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """What is ours, and the command after ``--`` for a verb that takes one.

    >>> _split(["run", "plan.yaml", "--", "python", "train.py", "--", "-v"])
    (['run', 'plan.yaml'], {'command': ('python', 'train.py', '--', '-v')})
    """
    verb = arguments[0] if arguments else ""
    if "--" not in arguments and verb in _WITH_COMMAND:
        _check_no_command(arguments)
    if "--" not in arguments or verb not in _WITH_COMMAND | _WITH_SCRIPT:
        return arguments, {}
    end = arguments.index("--")
    own, command = arguments[:end], tuple(arguments[end + 1 :])
    if verb in _WITH_COMMAND:
        return own, {"command": command}
    from paceline.app.requests.script_job import arguments_of_script

    return arguments_of_script(own, command), {}


def _check_no_command(arguments: list[str]) -> None:
    """Pass if no word is a program or a script: what is run stands after ``--``.

    Raises:
        InvalidInputError: One is; the hint is the line to type.
    """
    from shutil import which

    for at, word in enumerate(arguments[1:], start=1):
        is_value = arguments[at - 1].startswith("-")
        is_script = word.endswith((".py", ".sh"))
        if not is_value and (is_script or (not word.startswith("-") and which(word))):
            start = {".py": "python ", ".sh": "bash "}.get(word[-3:], "")
            line = " ".join((*arguments[:at], "--", start + word, *arguments[at + 1 :]))
            raise InvalidInputError(
                f"`{word}` stands where options do", hint=f"write `--` first: `paceline {line}`"
            )


def _read(arguments: list[str]) -> Call | None:
    """The verb that is called; None where what was asked for is printed already."""
    if not arguments:
        from paceline.app.home import home_text

        print(home_text())
        return None
    verb = arguments[0]
    if verb in ("--version", "-V"):
        from paceline.release import __version__

        print(f"paceline {__version__}")
        return None
    wanted = (verb,) if verb in VERBS else None
    if wanted is None and not verb.startswith("-"):
        raise UnknownNameError.from_name("command", verb, VERBS, command="paceline --help")
    if verb in _NUMERIC_VERBS:
        _load_numpy_for_one_thread()
    return read_call(build_commands(wanted), arguments)


def _load_numpy_for_one_thread() -> None:
    """Keep the linear algebra library from starting a thread per core.

    Our matrices are small: threads would take half a second of processor time and save none. The
    library reads its setting when it is loaded, so a program that paceline starts later, such as a
    worker that measures, does not inherit it.
    """
    before = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    import_module("numpy")
    if before is None:
        del os.environ[_THREADS]


def _forget_stdout() -> None:
    """Keep Python from failing once more when it flushes stdout at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _disk_error(error: OSError) -> InvalidInputError:
    if error.errno in _NAME_FAILURES:
        return InvalidInputError(
            f"`{error.filename}` cannot be used: {error.strerror}", hint="give another name"
        )
    where = f"to `{error.filename}`" if error.filename else "the answer"
    return InvalidInputError(
        f"cannot write {where}: {error.strerror}", hint="make room there, or write elsewhere"
    )


def _print_error(error: PacelineError) -> None:
    details = error.details.rstrip() if isinstance(error, WorkerError) else ""
    if details:
        print(details, file=sys.stderr)
    print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
