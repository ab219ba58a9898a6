"""Saying the answer: as text, Markdown or JSON, on stdout or into a file."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline.writing import write_whole

if TYPE_CHECKING:
    from paceline.reporting.tables import Table

#: Version of the layout of every JSON answer; it grows when a key changes its meaning or goes.
SCHEMA_VERSION = 1

Form = Literal["text", "md", "json"]
Printer = Callable[["Table"], str]

_DEFAULT_WIDTH = 100
_NARROWEST, _WIDEST = 80, 140


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb says, in every form it can be printed.

    Attributes:
        kind: Word for the JSON reader, such as ``plan``.
        value: The result: a dataclass, or a tuple of them.
        text: Text at a width.
        markdown: Markdown that can be pasted.
        failure: What is raised once all this is said; its status is the verb's.
    """

    kind: str
    value: object
    text: Callable[[int], str]
    markdown: Callable[[], str]
    failure: PacelineError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A verb that answers, with what it was given and how its answer is to be said.

    Attributes:
        verb: The function.
        values: Its keywords.
        output: File that it is written to; None prints it.
    """

    verb: Callable[..., Answer]
    values: Mapping[str, Any]
    form: Form = "text"
    output: Path | None = None


def answer_of(kind: str, value: object, *parts: Table | str | tuple[str, ...]) -> Answer:
    """An answer that is printed as tables and sentences, a blank line between them.

    Args:
        kind: Word for the JSON reader.
        value: The result.
        parts: What is printed, in order; lines of a tuple are folded at the width.
    """
    from paceline.reporting.tables import markdown_table, text_table
    from paceline.reporting.texts import folded

    def text(width: int) -> str:
        """At a width."""
        return _joined(
            parts,
            lambda table: text_table(table, width=width),
            lambda lines: folded("\n".join(lines), width),
        )

    def markdown() -> str:
        """That can be pasted."""
        return _joined(parts, markdown_table, "\n".join)

    return Answer(kind=kind, value=value, text=text, markdown=markdown)


def written_answer(kind: str, value: object, write: Callable[[Printer], str]) -> Answer:
    """An answer whose text and Markdown differ in how its tables are printed.

    Args:
        kind: Word for the JSON reader.
        value: The result.
        write: Writes it all, each table by what it is handed.
    """
    from paceline.reporting.tables import markdown_table, text_table
    from paceline.reporting.texts import wrapped

    return Answer(
        kind=kind,
        value=value,
        text=lambda width: wrapped(write(lambda table: text_table(table, width=width)), width),
        markdown=lambda: write(markdown_table),
    )


def _joined(
    parts: Sequence[Table | str | tuple[str, ...]],
    table: Callable[[Table], str],
    lines: Callable[[tuple[str, ...]], str],
) -> str:
    return "\n\n".join(
        one if isinstance(one, str) else lines(one) if isinstance(one, tuple) else table(one)
        for one in parts
    )


def say(answer: Answer, form: Form, output: Path | None) -> None:
    """Print an answer, or write it to a file and say so on stderr.

    Raises:
        InvalidInputError: The file cannot be written.
        PacelineError: The answer's own failure.
    """
    text = _formed(answer, form, terminal_width() if output is None else _DEFAULT_WIDTH)
    if output is None:
        print(_marked(text) if form == "text" and _has_colour() else text)
    else:
        write_whole(output, text + "\n")
        print(f"{output} written", file=sys.stderr)
    if answer.failure is not None:
        sys.stdout.flush()
        raise answer.failure


def _has_colour() -> bool:
    """Whether a person reads it on a terminal, and did not ask for none (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def _marked(text: str) -> str:
    r"""The text with its first sentence bold, its labels blue and what does not fit red.

    >>> _marked("It fits.\n\ngoal: cheapest").replace("\x1b", "^")
    '^[1mIt fits.^[0m\n\n^[34mgoal:^[0m cheapest'
    """
    head, gap, rest = text.partition("\n\n")
    rest = re.sub(r"^([a-z][a-z -]{1,14}:)(?= )", "\x1b[34m\\1\x1b[0m", rest, flags=re.MULTILINE)
    rest = re.sub(r"\bOOM\b", "\x1b[31mOOM\x1b[0m", rest)
    return f"\x1b[1m{head}\x1b[0m{gap}{rest}" if head.endswith(".") else text


def to_dict(value: object) -> Any:
    """A result as plain data: dataclasses become mappings with the same names and units.

    Infinities and not-a-numbers become None, because JSON has no word for them.

    >>> to_dict((1.0, math.inf))
    [1.0, None]
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_dict(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(key): to_dict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_dict(item) for item in value]
    return _plain(value)


def to_json(value: object, *, kind: str = "") -> str:
    """A result as JSON, with the schema version first."""
    plain = to_dict(value)
    body = plain if isinstance(plain, dict) else {"rows": plain}
    head = {"schema_version": SCHEMA_VERSION, **({"kind": kind} if kind else {})}
    return json.dumps({**head, **body}, indent=2, ensure_ascii=False, allow_nan=False)


def terminal_width() -> int:
    """Columns to print in: the terminal's within reason, else 100."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return _DEFAULT_WIDTH
    columns = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    return min(max(columns, _NARROWEST), _WIDEST)


def _formed(answer: Answer, form: Form, width: int) -> str:
    if form == "json":
        return to_json(answer.value, kind=answer.kind)
    return answer.markdown() if form == "md" else answer.text(width)


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, (date, Path)):
        return str(value)
    if hasattr(value, "tolist"):
        return to_dict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
