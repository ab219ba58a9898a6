"""Rows of published services as they are asked: what their notes state goes where `score` reads it.

PYTHONPATH=tools python -m accuracy_serving.asked ../shared/truth/e2e/serving_published.csv ROWS

Nothing that was measured changes. Limits of a server go from the notes into ``extra``, and the
processor that stands for a device into ``gpu``; a server that a command starts has as many devices
as ranks. Left out are all but two pairs of lengths of the widest source, runs that are there twice,
and rows whose command is that of another engine than the one they name.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path

Row = dict[str, str]

#: The widest source has a row for each pair of lengths: of these, those alike are asked.
_WIDEST, _LENGTHS = "argonne-lcf/LLM-Inference-Bench", ("128", "1024")
#: It reads a prompt of one request in passes of so many tokens, which change nothing else.
_OTHER_PASSES = re.compile(r"llama-bench -b (?!16\b)")
_LIMITS = re.compile(r"limit ttft p99 (\d+) ms tpot p99 (\d+) ms")
_PROCESSOR = re.compile(r"^CPU: ([^;,]+?)(?: CPU)?(?: @ [\d.]+ ?GHz)?;")
_MARKS = re.compile(r"\((?:R|TM)\)", re.IGNORECASE)
#: Sockets of a system by its name, else by its column, which a laptop fills with cores.
_SOCKETS = (re.compile(r"system=\S*?(\d)S[-_]"), re.compile(r"cpu sockets=(\d)\b"))
_COMMAND = re.compile(r"\bcmd ([^;]*)")
#: Ranks that share layers, and copies of them, as commands state them.
_RANKS = re.compile(r"(?:^| )(?:-tp|--tp|--tp[-_]size|--tensor-parallel-size)[ =](\d+)")
_COPIES = re.compile(r"--(?:dp|dp[-_]size|data-parallel-size)[ =]\d")
#: What the commands of one engine alone say.
_SAID = {
    "vllm": re.compile(r"vllm serve|--max-model-len|--enable-prefix-caching|--performance-mode"),
    "sglang": re.compile(r"sglang|--context-length|--tp-size|--mem-fraction"),
}


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path)
    parser.add_argument("rows", type=Path)
    paths = parser.parse_args()
    with paths.published.open(encoding="utf-8") as lines:
        asked = list(asked_rows(csv.DictReader(lines)))
    with paths.rows.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, asked[0].keys())
        writer.writeheader()
        writer.writerows(asked)


def asked_rows(published: Iterable[Row]) -> Iterator[Row]:
    """Each row that is asked, as it is asked."""
    seen = set[Hashable]()
    for row in published:
        key = _run(row)
        if key not in seen and _is_chosen(row) and names_its_engine(row):
            seen.add(key)
            yield row | _found_in_notes(row)


def stated(row: Mapping[str, str]) -> Row:
    """What ``extra`` says, name by name."""
    return dict(pair.partition("=")[::2] for pair in row["extra"].split(";"))


def _is_chosen(row: Row) -> bool:
    if not row["source"].startswith(_WIDEST):
        return True
    extra = stated(row)
    is_chosen = extra.get("isl") == extra.get("osl") and extra.get("isl") in _LENGTHS
    return is_chosen and not _OTHER_PASSES.search(row["notes"])


def _run(row: Row) -> Hashable:
    """What two rows of one run share.

    The widest source repeats what it runs; others state times to the first token to the digit.
    """
    if row["source"].startswith(_WIDEST):
        inputs = (
            value for name, value in row.items() if name not in ("notes", "throughput", "extra")
        )
        extra = (pair for pair in row["extra"].split(";") if "tok_s=" not in pair)
        return *inputs, *extra
    if "ttft_ms" in row["extra"] and "cmd " in row["notes"]:
        return row["source"], row["model"], row["gpu"], row["throughput"], row["extra"]
    return id(row)


def names_its_engine(row: Row) -> bool:
    """Whether the command in the notes is of the engine that the row names, where there is one."""
    command = _COMMAND.search(row["notes"])
    named = row["framework"].partition(" ")[0].lower()
    if command is None or named not in _SAID:
        return True
    said = [name for name, words in _SAID.items() if words.search(command[1])]
    return said in ([], [named])


def _found_in_notes(row: Row) -> Row:
    readings: tuple[Callable[[Row], Row], ...] = (_limits, _processor, _served_ranks)
    return {name: value for read in readings for name, value in read(row).items()}


def _limits(row: Row) -> Row:
    found = _LIMITS.search(row["notes"])
    if found is None:
        return {}
    limits = f"ttft_p99_limit_ms={found[1]};tpot_p99_limit_ms={found[2]}"
    return {"extra": f"{row['extra']};{limits}"}


def _processor(row: Row) -> Row:
    found = _PROCESSOR.search(row["notes"])
    if row["gpu"] or found is None:
        return {}
    sockets = next((of[1] for known in _SOCKETS if (of := known.search(row["notes"]))), "1")
    return {"gpu": f"CPU: {_MARKS.sub('', found[1])}", "n_gpus": sockets}


def _served_ranks(row: Row) -> Row:
    """One server has the devices of its ranks, however many its machine has."""
    command = _COMMAND.search(row["notes"])
    ranks = _RANKS.search(command[1]) if command else None
    if command is None or ranks is None or _COPIES.search(command[1]):
        return {}
    return {"n_gpus": ranks[1]}


if __name__ == "__main__":
    main()
