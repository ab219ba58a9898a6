"""Words of a shell command, quoted so that nothing in them is ever executed or split."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """A shell variable that is to be expanded, as one word.

    Attributes:
        prefix: Text in front of it in the same word.
        suffix: Text behind it in the same word.
        default: What it expands to where it is not set: text of our own, which the shell reads.
    """

    name: str
    prefix: str = ""
    suffix: str = ""
    default: str = ""


Word = str | Variable


def join(words: Iterable[Word]) -> str:
    """A command line for a POSIX shell.

    >>> print(join(["echo", "a b", Variable("HOME", suffix="/x"), "$(rm)"]))
    echo 'a b' "${HOME}"/x '$(rm)'
    """
    return " ".join(quote(word) for word in words)


def quote(word: Word) -> str:
    """One word, quoted; a variable is expanded inside double quotes."""
    if isinstance(word, str):
        return shlex.quote(word)
    prefix = shlex.quote(word.prefix) if word.prefix else ""
    suffix = shlex.quote(word.suffix) if word.suffix else ""
    name = f"{word.name}:-{word.default}" if word.default else word.name
    return f'{prefix}"${{{name}}}"{suffix}'


def export(name: str, value: Word) -> str:
    """A line that exports a variable."""
    return f"export {name}={quote(value)}"


def require(name: str, what: str) -> str:
    """A line that stops the script with a message where a variable is not set.

    The message is our own text, without characters that a shell or this syntax would read.
    """
    return f': "${{{name}:?{what}}}"'
