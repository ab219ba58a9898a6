"""What a call answered: status, output and files, as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "answers.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call answered.

    Attributes:
        call: The words, as typed.
        status: Exit status; -1 where it raised what is no mistake of a user.
        output: What stood on stdout: a parsed JSON document, or lines of text.
        message: The error, where the status is not 0.
        files: Files that the words name and the call wrote, by name, parsed where possible.
        cpu_s: Processor time in this process.
    """

    call: str
    status: int
    output: Any
    message: list[str]
    files: dict[str, Any]
    cpu_s: float


def to_line(answer: Answer) -> str:
    """One line of the file of answers."""
    return json.dumps(asdict(answer), ensure_ascii=False) + "\n"


def read_answers(folder: Path) -> dict[str, Answer]:
    """Answers of one run by their call."""
    lines = (folder / FILE_NAME).read_text(encoding="utf-8").splitlines()
    return {answer.call: answer for answer in (Answer(**json.loads(line)) for line in lines)}
