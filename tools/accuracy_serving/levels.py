"""Fit the levels of ``scoring/data/serving_levels.csv`` to published runs of services.

PYTHONPATH=tools python -m accuracy_serving.levels ROWS.csv ANSWERS.csv

ANSWERS are those of `paceline score` to ROWS with the table as it is: each line moves by the median
of its residuals. Its spread makes 80 % intervals of them, beyond that of the steps. Lines of fewer
rows than `MIN_ROWS` keep no level.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

MIN_ROWS = 5
Z_80 = 1.2815515655446004
#: Of steps, in the mean of the devices that were measured.
STEP_LOG_SIGMA = 0.2
TABLE = Path(__file__).parents[2] / "src/paceline/scoring/data/serving_levels.csv"


def main() -> None:
    """Rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("answers", type=Path)
    asked = parser.parse_args()
    lines = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    found = residuals(lines, asked.rows, asked.answers)
    for number, line in enumerate(lines):
        errors = np.array(found[number])
        line["rows"] = str(len(errors))
        if len(errors) < MIN_ROWS:
            line["log_level"], line["log_sigma"] = "0", ""
            continue
        middle = float(np.median(errors))
        spread = float(np.quantile(np.abs(errors - middle), 0.8)) / Z_80
        line["log_level"] = f"{float(line['log_level']) + middle:.3f}"
        line["log_sigma"] = f"{math.sqrt(max(spread**2 - STEP_LOG_SIGMA**2, 0.0)):.3f}"
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def residuals(
    lines: list[dict[str, str]], rows: Path, answers: Path
) -> defaultdict[int, list[float]]:
    """Log of predicted over measured rate (measured over predicted time) by number of the line."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    with rows.open(encoding="utf-8") as given, answers.open(encoding="utf-8") as told:
        for row, answer in zip(csv.DictReader(given), csv.DictReader(told), strict=True):
            if row["quality"] not in ("A", "B") or not answer["throughput_mid"]:
                continue
            if _is_set_by_its_rate(row, answer):
                continue
            ratio = math.log(float(answer["throughput_mid"]) / float(row["throughput"]))
            number = _line_of(lines, row, answer["device"])
            if number is not None:
                found[number].append(-ratio if row["unit"].startswith("ms") else ratio)
    return found


def _is_set_by_its_rate(row: dict[str, str], answer: dict[str, str]) -> bool:
    """Whether a service only gives what is offered: that says nothing of its steps."""
    same = math.isclose(
        float(answer["throughput_low"]), float(answer["throughput_mid"]), rel_tol=0.01
    )
    return "rate_per_s" in row["extra"] and same


def _line_of(lines: list[dict[str, str]], row: dict[str, str], device: str) -> int | None:
    asked = {"framework": row["framework"], "device": device, "model": row["model"]}
    return next(
        (
            number
            for number, line in enumerate(lines)
            if all(re.fullmatch(line[k], text, re.IGNORECASE) for k, text in asked.items())
        ),
        None,
    )


if __name__ == "__main__":
    main()
