"""The command that trains, taken apart: what it sets, runs in, is started by, and runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from paceline.deployment.facts import launchers
from paceline.errors import InvalidInputError, MissingFactError
from paceline.values import dataclass

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
#: Words that mean something to a shell only; none reads a command here.
_OF_A_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "(", ")"})
#: Pythons that are the one that `torchrun` runs in.
_PLAIN_PYTHONS = frozenset({"python", "python3"})
#: What torchrun gives every Python anyway.
_UNBUFFERED = "-u"
_EXAMPLE = "'python train.py --epochs 90'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The command that trains.

    Attributes:
        environment: Variables set in front of it.
        prefix: Words that run the rest in an environment, such as ``uv run --with numpy``.
        launcher: What starts its ranks (``torchrun``, ``accelerate``, ``deepspeed``); empty where
            the command starts none.
        options: Of the launcher, without those that the plan decides.
        replaced: Options of the launcher that the plan decides.
        interpreter: The Python with its options; empty where another program runs.
        words: Script, ``-m`` with a module, or program, and the arguments.
    """

    environment: tuple[tuple[str, str], ...] = ()
    prefix: tuple[str, ...] = ()
    launcher: str = ""
    options: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def script(self) -> str | None:
        """The file of the user's own that must be there; None where the command names none."""
        is_file = self.interpreter or self.launcher
        return self.words[0] if is_file and not self.words[0].startswith("-") else None

    @property
    def python_words(self) -> tuple[str, ...]:
        """The command as it runs in one process."""
        return (*self.prefix, *self.interpreter, *self.words)

    @property
    def ranks_words(self) -> tuple[str, ...]:
        """The launcher of ranks and the words that it is given behind its own options.

        Plain Python is the launcher's business; another Python starts the launcher itself, and
        another program, or a Python with options, is started as it is.
        """
        python = self.interpreter[:1]
        is_plain = not self.interpreter or python[0] in _PLAIN_PYTHONS
        starts = ("torchrun",) if is_plain else (*python, "-m", "torch.distributed.run")
        return (*self.prefix, *starts)

    @property
    def ranked_words(self) -> tuple[str, ...]:
        """What a launcher of ranks starts, in its own words."""
        if self.launcher or len(self.interpreter) == 1:
            return self.words
        return ("--no-python", *self.interpreter, *self.words)


def read_program(words: Sequence[str]) -> Program:
    """The parts of a command.

    Args:
        words: As a shell would split it.

    Raises:
        MissingFactError: It names nothing to run.
        InvalidInputError: A program that starts ranks in a way that launch files do not write.

    >>> read_program(["FOO=1", "uv", "run", "python", "-u", "train.py"]).prefix
    ('uv', 'run')
    """
    environment, rest = _environment(list(words))
    prefix, rest = _runner(rest)
    inner, rest = _environment(rest)
    if not rest:
        raise _nothing(words)
    _refuse_unsupported(rest)
    parts = _launched(rest, words) or _run(rest, words)
    return Program(environment=(*environment, *inner), prefix=tuple(prefix), **parts)


def _launched(rest: list[str], words: Sequence[str]) -> dict[str, Any] | None:
    """The parts of a command that begins with a launcher; None where it does not."""
    for name, facts in launchers()["launcher"].items():
        length = _beginning(rest, facts)
        if length:
            options, replaced, inner = _split(rest[length:], facts)
            if not inner:
                raise _nothing(words)
            if inner[0] in ("-m", "--module"):
                inner = ["-m", *inner[1:]]
            return {
                "launcher": name,
                "options": tuple(options),
                "replaced": tuple(replaced),
                "words": tuple(inner),
            }
    return None


def _beginning(rest: list[str], facts: dict[str, Any]) -> int:
    """How many words name the launcher: ``accelerate launch``, ``python -m torch…``; 0 for none."""
    own = facts["words"]
    if rest[: len(own)] == own:
        return len(own)
    is_module = bool(_PYTHON.fullmatch(rest[0])) and rest[1:2] == ["-m"]
    return 3 if is_module and rest[2:3] and rest[2] in facts["modules"] else 0


def _split(rest: list[str], facts: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """A launcher's own options, those that the plan decides, and what it starts."""
    kept: list[str] = []
    replaced: list[str] = []
    place = 0
    while place < len(rest) and rest[place].startswith("-"):
        word = rest[place]
        if word in ("-m", "--module"):
            break
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        length = 2 if not equals and name in facts["valued"] else 1
        place_of = replaced if name in facts["decided"] else kept
        place_of += rest[place : place + length]
        place += length
    return kept, replaced, rest[place:]


def _run(rest: list[str], words: Sequence[str]) -> dict[str, Any]:
    """The parts of a command that starts no ranks."""
    if rest[0].endswith(".py") or rest[0] == "-m":
        rest = ["python", *rest]
    if not _is_python(rest[0]):
        return {"words": tuple(rest)}
    valued, place = launchers()["python"]["valued"], 1
    while place < len(rest) and rest[place].startswith("-") and rest[place] not in ("-m", "-c"):
        place += 2 if rest[place] in valued else 1
    interpreter = [word for word in rest[:place] if word != _UNBUFFERED]
    if len(rest[place:]) < (2 if rest[place : place + 1] in (["-m"], ["-c"]) else 1):
        raise _nothing(words)
    return {"interpreter": tuple(interpreter), "words": tuple(rest[place:])}


def _is_python(word: str) -> bool:
    return bool(_PYTHON.fullmatch(word.rpartition("/")[2]))


def _environment(rest: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Assignments in front, also behind ``env``."""
    pairs: list[tuple[str, str]] = []
    if rest[:1] == ["env"]:
        rest = rest[1:]
    while rest and (found := _ASSIGNMENT.fullmatch(rest[0])):
        pairs.append((found[1], found[2]))
        rest = rest[1:]
    return pairs, rest


def _runner(rest: list[str]) -> tuple[list[str], list[str]]:
    """Words that run the rest in an environment, and the rest."""
    for facts in launchers()["runner"].values():
        own = facts["words"]
        if rest[: len(own)] != own:
            continue
        place = len(own)
        while place < len(rest) and rest[place].startswith("-") and rest[place] != "--":
            if rest[place] in ("-m", "--module"):
                return rest[:place], ["python", "-m", *rest[place + 1 :]]
            place += 2 if rest[place] in facts["valued"] else 1
        return rest[:place], [word for word in rest[place : place + 1] if word != "--"] + rest[
            place + 1 :
        ]
    return [], rest


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command as it is typed.

    Raises:
        InvalidInputError: Quotes that do not end, or words that only a shell reads.

    >>> split_command("python train.py --note 'two words'")
    ('python', 'train.py', '--note', 'two words')
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidInputError(
            f"the command cannot be split into words: {error}", hint="check its quotes"
        ) from None
    for word in words:
        if word in _OF_A_SHELL or (len(word) > 1 and word.endswith(";")):
            raise InvalidInputError(
                f"`{word}` in the command is for a shell, and none reads it",
                hint="write it as `bash -c '…'`, or put it into a script",
            )
    return words


def _refuse_unsupported(rest: list[str]) -> None:
    if rest[0] in launchers()["unsupported"]["names"]:
        raise InvalidInputError(
            f"`{rest[0]}` starts ranks or containers by itself, which the launch files do",
            hint=f"give what one rank runs, such as --command {_EXAMPLE}",
        )


def _nothing(words: Sequence[str]) -> MissingFactError:
    return MissingFactError(
        f"`{' '.join(words)}` names no script", hint=f"write it like --command {_EXAMPLE}"
    )
