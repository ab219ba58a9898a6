"""Score many-device predictions against published measurements; write a page with the worst cases.

    PYTHONPATH=tools python -m accuracy_parallel ../shared/truth --out FILE

T6 collectives, T7 parallel training and the choice of strategy (vTrain), T8 new hardware
(SimuMax), T9 Megatron 22B to 1T; ``t8 t9`` behind the folder makes these sections alone. What a
section was fitted on stands in the section.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages import deliver

from accuracy_parallel.collectives import collectives_section
from accuracy_parallel.megatron import megatron_section
from accuracy_parallel.simumax import simumax_section
from accuracy_parallel.sites import Simulator
from accuracy_parallel.tables import Score, summary
from accuracy_parallel.vtrain import vtrain_section

_INTRODUCTION = """# Accuracy of many-device predictions

Made by `make accuracy-parallel`; errors are means of absolute errors relative to the measurement.
Clusters (llm-foundry, Megatron-Bridge, MLPerf, pairs of 1 and 8 GPUs) stand in
[accuracy_clusters.md](accuracy_clusters.md).
"""

#: Why figures are what they are, written by hand.
CAUSES = Path(__file__).with_name("causes.md")


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("truth", type=Path)
    parser.add_argument("sections", nargs="*", default=["t6", "t7", "t8", "t9"])
    parser.add_argument("--out", type=Path, help="file to write; printed without it")
    asked = parser.parse_args()
    truth, simulator = asked.truth, Simulator()
    sections = {
        "t6": lambda: collectives_section(truth),
        "t7": lambda: vtrain_section(truth, simulator),
        "t8": lambda: simumax_section(truth),
        "t9": lambda: megatron_section(truth, simulator),
    }
    found = [item for name in asked.sections for item in sections[name]()]
    scores = [item for item in found if isinstance(item, Score)]
    lines = [item for item in found if isinstance(item, str)]
    causes = CAUSES.read_text(encoding="utf-8")
    deliver("\n".join([_INTRODUCTION, summary(scores), causes, *lines]), asked.out)


if __name__ == "__main__":
    main()
