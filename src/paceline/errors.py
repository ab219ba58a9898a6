"""Failures that a user can fix.

The tree, root first; every leaf is a situation that a caller may treat differently::

    PacelineError                exit 2   what is wrong, and a hint
    ├── UnknownNameError         exit 2   a name that is not in a list we own
    ├── InvalidInputError        exit 2   a value, file or option that cannot be used
    ├── MissingFactError         exit 2   a fact we need and refuse to guess
    ├── WorkerError              exit 2   the user's code, or the Python that ran it, failed
    ├── DoesNotFitError          exit 3   the job does not fit the memory it was given
    ├── NoOfferError             exit 4   no offer meets the goal
    ├── RegressionError          exit 5   a comparison found a regression
    └── StackConflictError       exit 6   no software combination satisfies the constraints
"""

from __future__ import annotations

from collections.abc import Iterable

#: So many names are told where none is near; more are listed by a command.
_FEW_NAMES = 8
_MOST_CLOSE_NAMES = 3


class PacelineError(Exception):
    """A failure the user can fix: ``str(e)`` says what is wrong, ``e.hint`` what to do.

    Attributes:
        hint: One sentence with the next thing to try.
        exit_code: The status the command line ends with.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class UnknownNameError(PacelineError):
    """A name that is not in a list we own. We never guess one."""

    @classmethod
    def from_name(
        cls, kind: str, name: str, known: Iterable[str], *, command: str = ""
    ) -> UnknownNameError:
        """Build the message for an unknown ``name`` of a ``kind`` with its nearest neighbours.

        Args:
            kind: What was looked for, as a user says it (``device``, ``offer``, ``model``).
            name: What the user typed.
            known: Every accepted name.
            command: The command that lists them, as typed; without one, or where nothing is near
                and they are few, the names themselves are listed.

        >>> e = UnknownNameError.from_name("device", "A1000", ["A100"], command="paceline devices")
        >>> str(e), e.hint
        ('no device named `A1000`', 'did you mean `A100`? list them with `paceline devices`')
        """
        known = tuple(known)
        close = close_names(name, known)
        meant = f"did you mean {', '.join(f'`{c}`' for c in close)}? " if close else ""
        is_told = not command or (not close and 0 < len(known) <= _FEW_NAMES)
        names = f"known are: {', '.join(known)}" if known else f"there is no {kind} to name"
        listed = names if is_told else f"list them with `{command}`"
        return cls(f"no {kind} named `{name}`", hint=meant + listed)


class InvalidInputError(PacelineError):
    """A value, file or option that cannot be used."""


class MissingFactError(PacelineError):
    """A fact that is needed, unknown, and never replaced by a default."""


class WorkerError(PacelineError):
    """A worker process failed: the user's code raised, or its Python died, hung or spoke garbage.

    Attributes:
        details: The worker's own last lines, shown as they are.
    """

    def __init__(self, message: str, *, hint: str, details: str = "") -> None:
        super().__init__(message, hint=hint)
        self.details = details


class DoesNotFitError(PacelineError):
    """The job does not fit the memory of the devices it was given."""

    exit_code = 3


class NoOfferError(PacelineError):
    """No offer meets the goal."""

    exit_code = 4


class RegressionError(PacelineError):
    """A comparison found a regression."""

    exit_code = 5


class StackConflictError(PacelineError):
    """No combination of software satisfies the constraints."""

    exit_code = 6


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three names that resemble ``name``, nearest first, ignoring case and separators."""
    import difflib  # only where a name is wrong

    by_key = {_key(k): k for k in known}
    keys = difflib.get_close_matches(_key(name), by_key, n=_MOST_CLOSE_NAMES, cutoff=0.6)
    return [by_key[k] for k in keys]


def _key(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
