r"""Write a page on answers to published runs of services, each source apart.

PYTHONPATH=tools python -m accuracy_serving.services ROWS.csv ANSWERS.csv --out PAGE.md \
    --untold UNTOLD.csv ANSWERS.csv

ANSWERS are those of `paceline score` to the rows before them: those of ``accuracy_serving.asked``,
and those of ``accuracy_serving.over_offline``. Rows of quality A and B count.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from accuracy_serving.kept_widths import page as widths_page
from accuracy_serving.over_offline import table as over_offline_table
from accuracy_serving.terms import page as left_out_page
from accuracy_serving.terms import paired, read

#: Why figures are what they are, written by hand.
CAUSES = Path(__file__).with_name("services_causes.md")
#: What is compared: the mean is held against the median.
QUANTITIES = (
    "capacity", "tpot mean", "tpot p50", "tpot p99", "ttft mean", "ttft p50", "ttft p99",
)  # fmt: skip
#: An answer further off counts as wrong.
MAX_RATIO = 5.0
#: Requests in flight by a row's times over those that it states; a ramp up and down is within.
MAX_CONTRADICTION = 3.0
_BOUNDS = ("low", "mid", "high")
_INTRODUCTION = """# Accuracy of services

Made by `python -m accuracy_serving.services` from published runs of services (`score` with a
`scenario`). No level of a source acts: `plan`, `predict` and `score` answer alike. Fitted to such
runs are the host's time between steps of two engines before they overlap it, the levels of engines
before their kernels were tuned for other makers' devices, and the bytes that portable kernels keep
on their way (first table); their sources are left out in turn below it; and
how much longer late items of a single stream take. Times to the first token, percentiles and queues
are not fitted. An error is the median distance of
predicted over measured from one; coverage is of the 80 % interval; *far* counts answers beyond
×/÷ 5, and they count as unanswered. A rate that a run was given, and keeps, is no answer and is
left out of the second table: so are all but overloaded rows of MLPerf's server scenario, which
state the rate. Times are not compared where those that a row states, times its rate, are beyond
×/÷ 3 of the requests that it states in flight (Little's law). Rows whose rates and times are those
of another kind of device to the digit are left out with it: one table was copied. So are rows whose
command is that of another engine than they name (67 of gpustack's)."""


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--untold", type=Path, nargs=2, help="servers' rows, and their answers")
    asked = parser.parse_args()
    text = "\n".join(page(asked.rows, asked.answers, asked.untold)) + "\n"
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)


def page(rows: Path, answers: Path, untold: Sequence[Path] | None = None) -> Iterator[str]:
    """The lines of the page.

    Args:
        rows: That were asked.
        answers: To them.
        untold: Rows of servers without their rates, and answers to them.
    """
    found: defaultdict[str, defaultdict[str, list[tuple[float, bool]]]]
    found = defaultdict(lambda: defaultdict(list))
    asked, missed, reasons = Counter[str](), Counter[str](), Counter[str]()
    for row, answer in paired(rows, answers):
        if row["quality"] not in ("A", "B"):
            continue
        source = row["source"].partition(":")[0]
        asked[source] += 1
        if answer["reason"]:
            missed[source] += 1
            reasons[answer["reason"]] += 1
        for name, ratio, covered in compared(row, answer):
            found[source][name].append((ratio, covered))
            found["all"][name].append((ratio, covered))
    asked["all"], missed["all"] = asked.total(), missed.total()
    yield _INTRODUCTION
    yield "\n## Capacity, each source left out\n"
    yield from left_out_page(read(rows, answers))
    for name in QUANTITIES:
        yield f"\n## {name.capitalize()}\n"
        yield "| source | rows | unanswered | compared | ratio | error | coverage | far |"
        yield "|---|---|---|---|---|---|---|---|"
        for source, count in asked.most_common():
            if pairs := found[source][name]:
                yield _line(source, count, missed[source], pairs)
    yield "\n## Times at a kept rate, each submitter left out\n"
    yield from widths_page(paired(rows, answers))
    if untold:
        yield "\n## Server over offline, rates not told\n"
        yield from over_offline_table(paired(rows, answers), paired(*untold))
    yield "\n## Unanswered\n\n| reason | rows |\n|---|---|"
    yield from (f"| {reason} | {count} |" for reason, count in reasons.most_common())
    yield "\n" + CAUSES.read_text(encoding="utf-8").rstrip()


def agrees(row: Mapping[str, str], stated: Mapping[str, str]) -> bool:
    """Whether the times of a row and its rate make the requests that it had in flight.

    By Little's law as many are in flight as come while one is answered. Some tables of clients
    count several tokens that come together as one each, and state 0.1 ms per token of what takes
    10. Where rate, times or requests in flight are not stated nothing contradicts.
    """

    def number(name: str) -> float:
        return float(stated.get(name) or math.nan)

    peak = re.search(r"peak (\d+) in flight", row["notes"])
    in_flight = float(peak[1]) if peak else number("concurrency")
    answer_s = (number("ttft_ms_mean") + number("tpot_ms_mean") * (number("osl") - 1)) / 1e3
    found = number("req_s") * answer_s / in_flight
    return math.isnan(found) or 1.0 / MAX_CONTRADICTION <= found <= MAX_CONTRADICTION


def compared(
    row: Mapping[str, str], answer: Mapping[str, str]
) -> Iterator[tuple[str, float, bool]]:
    """Each quantity that is measured and told: its name, the ratio, and whether it is covered."""
    stated = dict(pair.partition("=")[::2] for pair in row["extra"].split(";"))
    pairs = {"capacity": (row["throughput"], [answer[f"throughput_{b}"] for b in _BOUNDS])}
    for short in ("tpot", "ttft") if agrees(row, stated) else ():
        for name, percentile in (("mean", "p50"), ("p50", "p50"), ("p99", "p99")):
            measured = stated.get(f"{short}_ms_{name}", "")
            seconds = str(float(measured) / 1e3) if measured else ""
            told = [answer[f"{short}_{percentile}_{b}_s"] for b in _BOUNDS]
            pairs[f"{short} {name}"] = (seconds, told)
    for name, (measured, told) in pairs.items():
        if measured and all(told) and float(measured) > 0.0:
            low, mid, high = map(float, told)
            yield name, mid / float(measured), low <= float(measured) <= high


def _line(source: str, count: int, missed: int, pairs: list[tuple[float, bool]]) -> str:
    ratios = np.array([ratio for ratio, _ in pairs])
    far = int((np.abs(np.log(ratios)) > math.log(MAX_RATIO)).sum())
    cells = (
        source, f"{count:,}", f"{missed / count:.0%}", f"{len(pairs):,}",
        f"{np.median(ratios):.2f}", f"{np.median(np.abs(ratios - 1.0)):.0%}",
        f"{np.mean([covered for _, covered in pairs]):.0%}", str(far),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
