"""Tables as text: what stands in each cell, and which number it is.

A table that would be misread is refused or its row marked: a column that stands there twice, a
quote that is never closed, a row with more cells than the header has names.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

from paceline.errors import InvalidInputError
from paceline.reading import read_bytes

#: Under this name stands what a row has beyond its header.
SURPLUS = "cells beyond the header"

_MAX_BYTES = 500_000_000
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
#: Words of other programs for a cell without a value.
_NOTHING = frozenset({"", "-", "?", "na", "n/a", "nan", "<na>", "nil", "none", "null", "unknown"})
#: Commas between groups of three digits.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
#: A comma before any other number of digits is that of a decimal fraction.
_DECIMAL_COMMA = re.compile(r"-?\d+,(?:\d{1,2}|\d{4,})")


def read_cells(
    path: Path, *, columns: Collection[str], required: Collection[str]
) -> list[dict[str, str]]:
    """Every line of a table by column, names in lower case; lines without a cell are left out.

    Commas, semicolons and tabs separate, as the header shows; a mark of the byte order is skipped,
    and tells UTF-16. A file that begins with a brace holds one JSON object per line.

    Args:
        path: The table.
        columns: Names that may not stand there twice.
        required: Names that must stand there.

    Raises:
        InvalidInputError: No such file, not text, a needed column is missing or one of ``columns``
            is there twice, or a quote is never closed.
    """
    try:
        content = read_bytes(path, what="table", most_bytes=_MAX_BYTES, hint="name a CSV file")
        encoding = "utf-16" if content[:2] in _UTF_16_MARKS else "utf-8-sig"
        with io.StringIO(content.decode(encoding), newline="") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            if first.lstrip().startswith("{"):
                rows = _json_rows(path, file)
                names = [name for row in rows for name in row]
            else:
                names, rows = _separated_rows(file, _separator(first))
                _check_once(path, names, columns)
    except (UnicodeError, csv.Error, json.JSONDecodeError) as error:
        raise InvalidInputError(
            f"`{path}` cannot be read as a table: {error}",
            hint="give a CSV file in UTF-8 with a header line, or one JSON object per line",
        ) from None
    if missing := [name for name in required if name not in names]:
        raise InvalidInputError(
            f"`{path}` lacks the columns {', '.join(missing)}",
            hint=f"its header should name {', '.join(columns)}",
        )
    return rows


def number_of(text: str) -> float | None:
    """The number in a cell; None where the cell says that there is none.

    Raises:
        ValueError: The text is no finite number.

    >>> number_of("1,024"), number_of("64.0"), number_of("25,6"), number_of("n/a")
    (1024.0, 64.0, 25.6, None)
    """
    if text.strip().lower() in _NOTHING:
        return None
    plain = text.strip()
    is_decimal = _DECIMAL_COMMA.fullmatch(plain)
    value = float(plain.replace(",", ".") if is_decimal else _THOUSANDS.sub("", plain))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _separator(header: str) -> str:
    """What stands between the names of the columns.

    >>> _separator("model;gpu;unit"), _separator("model,gpu"), _separator("model")
    (';', ',', ',')
    """
    return max(",;\t", key=header.count)


def _separated_rows(file: IO[str], separator: str) -> tuple[list[str], list[dict[str, str]]]:
    """Names of the columns, and the rows below them."""
    lines = (line for line in _lines(file, separator) if any(cell.strip() for cell in line))
    names = [name.strip().lower() for name in next(lines, [])]
    return names, [_by_name(names, line) for line in lines]


def _lines(file: IO[str], separator: str) -> Iterator[list[str]]:
    """Lines as cells; strict, or a quote that is never closed swallows the rest of the table."""
    reader = csv.reader(file, delimiter=separator, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from None


def _by_name(names: list[str], cells: list[str]) -> dict[str, str]:
    surplus = [cell for cell in cells[len(names) :] if cell.strip()]
    row = dict(zip(names, cells, strict=False))
    return {**row, SURPLUS: " | ".join(surplus)} if surplus else row


def _check_once(path: Path, names: list[str], columns: Collection[str]) -> None:
    if twice := sorted({name for name in names if name in columns and names.count(name) > 1}):
        raise InvalidInputError(
            f"`{path}` has the columns {', '.join(twice)} more than once",
            hint="keep the one that is meant, and give the other another name",
        )


def _json_rows(path: Path, lines: Iterable[str]) -> list[dict[str, str]]:
    """One row per line that is not blank; what is null is an empty cell."""
    objects = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(one, dict) for one in objects):
        raise InvalidInputError(
            f"`{path}` holds lines that are no JSON object", hint="give one object per line"
        )
    return [
        {name.strip().lower(): "" if value is None else str(value) for name, value in one.items()}
        for one in objects
    ]
