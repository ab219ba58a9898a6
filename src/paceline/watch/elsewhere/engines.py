"""What runs jobs elsewhere, as data: which words submit, ask, stop, send and fetch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.shipped import shipped_toml
from paceline.values import dataclass

Word = Literal["waiting", "running", "done", "failed"]
#: Words after it run on the other side, joined as one quoted argument.
_THERE = "|"
_HOST = re.compile(r"[A-Za-z0-9_][\w.@:%-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A way to ask for the state of a job.

    Attributes:
        ask: Words of the command.
        pattern: Finds the engine's word in the answer.
    """

    ask: tuple[str, ...]
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Something that runs jobs.

    Attributes:
        name: As typed after ``--on``.
        program: What must be installed here.
        shares_folder: Whether the run folder is seen where the job runs.
        submit: Words that hand over ``start.sh``.
        job: Finds the job's number in what ``submit`` prints.
        cancel: Commands that end the job as a scheduler would, one after the other.
        target: Launch files that ``deploy`` writes for it.
        directive: How lines begin that its scheduler reads in a script; empty where it reads none.
        states: Ways to ask, the first that answers counting.
        waiting: The engine's words for a job that does not run yet.
        done: Its words for one that ended well.
        failed: Its words for one that did not.
        home: The run's folder there; empty where it is shared.
        send: Words that unpack an archive there from their input; empty where ``submit`` sends.
        fetch: Words that pack the run's folder there.
        release: Words that say that all was fetched; empty where nothing waits for that.
        document: File of the run's folder that is submitted; empty where ``start.sh`` is.
        facts: What a document without a plan is written from, and whether it must be given.
        directory: Where the command runs there, if nothing else is said; empty for the home.
        submit_s: How long submitting may take.
        number: The job's number, where it is ours to choose; empty where the engine does.
        host: Other side, where it needs a name.
    """

    name: str
    program: str
    shares_folder: bool
    submit: tuple[str, ...]
    job: str
    cancel: tuple[tuple[str, ...], ...]
    target: str
    states: tuple[Question, ...]
    waiting: frozenset[str]
    done: frozenset[str]
    failed: frozenset[str]
    home: str = ""
    send: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    document: str = ""
    facts: Mapping[str, bool] = field(default_factory=dict)
    directory: str = ""
    submit_s: float = 60.0
    number: str = ""
    directive: str = ""
    host: str = field(default="")

    def words(self, template: Sequence[str], **values: str) -> list[str]:
        """A command: placeholders filled word by word, so that no value is read by a shell."""
        known = {"host": self.host, **values}
        words = [_filled(word, known) for word in template]
        if _THERE not in template:
            return words
        at = list(template).index(_THERE)
        return [*words[:at], shlex.join(words[at + 1 :])]

    @property
    def needs_host(self) -> bool:
        """Whether the other side has a name of the user's."""
        return any("{host}" in word for word in self.submit)

    def state_of(self, word: str) -> Word:
        """The engine's word for a state in ours; one that it does not name is under way."""
        if word in self.done:
            return "done"
        if word in self.failed:
            return "failed"
        return "waiting" if word in self.waiting else "running"


def find_engine(on: str) -> Engine:
    """The engine of ``--on``: ``slurm``, ``ssh:HOST``, ``ray``, ``kubernetes``, ``skypilot``.

    Raises:
        UnknownNameError: No such engine.
        InvalidInputError: A host where none belongs, none where one does, or one that a program
            could take for an option.
    """
    name, colon, host = on.partition(":")
    table = shipped_toml("watch", "engines.toml")
    if name not in table:
        raise UnknownNameError.from_name("engine", name, list(table), command="paceline run --help")
    engine = _engine(name, table[name], host)
    if bool(colon) != engine.needs_host:
        how = f"{name}:HOST" if engine.needs_host else name
        raise InvalidInputError(f"`{on}` names no place", hint=f"write it like --on {how}")
    if engine.needs_host and not _HOST.fullmatch(host):
        raise InvalidInputError(f"`{host}` is no host", hint="such as --on ssh:me@gpu1")
    return engine


def _engine(name: str, entry: Mapping[str, Any], host: str) -> Engine:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    values |= {key: frozenset(entry[key]) for key in ("waiting", "done", "failed")}
    values["cancel"] = tuple(map(tuple, entry["cancel"]))
    values["states"] = tuple(
        Question(ask=tuple(one["ask"]), pattern=one["pattern"]) for one in entry["states"]
    )
    return Engine(**values, name=name, host=host)


def _filled(word: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), word)
