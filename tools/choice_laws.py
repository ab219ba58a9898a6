"""Laws of the first place, over the whole zoo: toss-ups, draws of the noise, and dominance.

Usage: python tools/choice_laws.py [--draws 100] [--only NAME,…] [--as-of DAY] [--out FILE]
Each model of the zoo is planned as `plan NAME` plans it. Then every figure is drawn from its own
interval, with what two candidates share drawn once for both (the device, the setting, the step, the
price list, the way to share a model), and the choice is made again. A first place is the same where
provider, device, count and strategy are.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pages import deliver

from paceline.app.requests.plan_request import read_request
from paceline.errors import PacelineError
from paceline.model.graph.graph import FloatArray
from paceline.model.names.zoo_facts import zoo_facts
from paceline.parallelism.uncertainty import STRATEGY_LOG_SIGMA
from paceline.planning.explain.wording import candidate_name
from paceline.planning.forecast.question import resolve_question
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.more_devices import wide_enough
from paceline.planning.search.pareto import Index
from paceline.planning.search.preference import Standing, competing
from paceline.planning.search.selection import Selection, second_axis, select

#: Limits of the laws: share of draws that change the first place, and of the zoo that is a toss-up.
MOST_CHANGED, MOST_TOSS_UPS = 1 / 3, 0.2
#: Candidates further from the best than this factor never win a draw.
_FAR = 4.0
_UNSPLIT_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one model's plan showed.

    Attributes:
        model: Its name.
        first: The first place, in words.
        toss_up: What the plan says that it is a toss-up with; empty if with nothing.
        changed: Share of draws in which another stands first.
        unsaid: Share of draws in which neither it nor what is named a toss-up does.
        others: The most frequent other first place, in words.
        dominated: A candidate that is cheaper and faster at the stated chance; empty if there is
            none.
    """

    model: str
    first: str
    toss_up: str
    changed: float
    unsaid: float
    others: str
    dominated: str

    @property
    def is_lawful(self) -> bool:
        """Whether the noise changes the first place seldom, or between places that are named."""
        return self.changed < MOST_CHANGED or (bool(self.toss_up) and self.unsaid < MOST_CHANGED)


def main() -> None:
    """Plan the zoo and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--as-of", default="2026-11-23")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else sorted(zoo_facts())
    found, refused, start = [], [], time.process_time()
    for name in names:
        try:
            found.append(examined(name, asked.as_of, asked.draws))
        except PacelineError as error:
            refused.append(f"{name}: {error}")
            continue
        print(f"{time.process_time() - start:5.0f} s  {found[-1]}", file=sys.stderr, flush=True)
    deliver(page(found, refused, asked.draws), asked.out)


def examined(name: str, day: str, num_draws: int) -> Found:
    """One model's plan under the laws."""
    request = read_request(name, as_of=day)
    question = resolve_question(request.workload, request.goal, request.work, today=request.today)
    search = wide_enough(run_search(question, request.catalog), request.catalog)
    chosen = select(search)
    counts = drawn_firsts(search, chosen.best, num_draws)
    first = _words(search, chosen.best)
    toss_up = "" if chosen.toss_up is None else _words(search, chosen.toss_up)
    others = [(words, times) for words, times in counts.most_common() if words != first]
    return Found(
        model=name,
        first=first,
        toss_up=toss_up,
        changed=1.0 - counts[first] / num_draws,
        unsaid=1.0 - (counts[first] + (counts[toss_up] if toss_up else 0)) / num_draws,
        others=f"{others[0][0]} ({others[0][1]})" if others else "",
        dominated=dominator(search, chosen),
    )


def drawn_firsts(search: Search, best: int, num_draws: int) -> Counter[str]:
    """How often each place stands first when the noise is drawn."""
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    rows = rows[search.objective[rows] < _FAR * search.objective[best]]
    rows = _one_of_each(search, rows, best)
    random = np.random.default_rng(0)
    counts: Counter[str] = Counter()
    for _ in range(num_draws):
        objective = search.objective.copy()
        objective[rows] *= np.exp(noise(standing, rows, random))
        first = replace(standing, objective=objective).first(rows)
        counts[_words(search, int(first if first is not None else best))] += 1
    return counts


def _one_of_each(search: Search, rows: Index, best: int) -> Index:
    """Of each place, count and kind of strategy the best row: what a headline tells apart."""
    table = search.candidates
    rows = np.concatenate([[best], rows[np.argsort(search.objective[rows], kind="stable")]])
    keys = np.stack([table.place[rows], table.num_nodes[rows], search.kinds[rows]])
    _, firsts = np.unique(keys, axis=1, return_index=True)
    return rows[np.sort(firsts)]


def noise(standing: Standing, rows: Index, random: np.random.Generator) -> FloatArray:
    """One draw of the logarithm of each objective's error, (len(rows),)."""
    device, whole = standing.device_log_sigma[rows], standing.step_log_sigma[rows]
    price, total = standing.price_log_sigma[rows], standing.log_sigma[rows]
    of_device, of_setting = standing.within_device_frac, standing.within_setting_frac
    where = standing.device[rows]
    setting = where * 1000 + standing.setting[rows]
    cell = where * 10**7 + standing.cell[rows]
    own = np.maximum(total**2 - whole**2 - price**2, 0.0)
    strategies = np.where(standing.order[0, rows] > _UNSPLIT_RANK, STRATEGY_LOG_SIGMA, 0.0)
    return np.asarray(
        _shared(where, random) * device * of_device**0.5
        + _shared(setting, random) * device * (of_setting - of_device) ** 0.5
        + _shared(cell, random) * np.sqrt(np.maximum(whole**2 - of_setting * device**2, 0.0))
        + _shared(standing.price_list[rows], random) * price
        + _shared(standing.kinds[rows], random) * strategies
        + _shared(rows, random) * np.sqrt(own)
    )


def _shared(keys: Index, random: np.random.Generator) -> FloatArray:
    """One standard normal draw for each key."""
    _, places = np.unique(keys, return_inverse=True)
    return random.standard_normal(int(places.max()) + 1)[places]


def dominator(search: Search, chosen: Selection) -> str:
    """A candidate that is told to be better and is no slower than the first, in words."""
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    worse = rows[standing.is_told_worse(chosen.best, rows)]
    second = second_axis(search)
    both = worse[second[worse] <= second[chosen.best]]
    return _words(search, int(both[0])) if len(both) else ""


def _words(search: Search, row: int) -> str:
    strategy = re.sub(r"/mb\d+", "", str(strategy_of(search, row)))
    return f"{candidate_name(search, row)} {strategy}"


def page(found: list[Found], refused: list[str], num_draws: int) -> str:
    """The page, worst first."""
    toss_ups = sum(bool(one.toss_up) for one in found)
    unlawful = [one for one in found if not one.is_lawful]
    order = sorted(found, key=lambda one: (one.is_lawful, -one.unsaid, -one.changed))
    rows = [
        f"| {one.model} | {one.first} | {one.toss_up or '–'} | {one.changed:.0%} |"
        f" {one.unsaid:.0%} | {one.others or '–'} |"
        for one in order
    ]
    return "\n".join([
        "# Laws of the first place",
        "",
        "`python tools/choice_laws.py` plans every model of the zoo as `plan NAME` does, draws all",
        f"figures {num_draws} times from their intervals and chooses again. Two GPUs err apart",
        "by a quarter to a third in most plans, and marketplaces rent out several within that:",
        "which of them comes first then changes from draw to draw.",
        "",
        "| law | asked | found |",
        "|---|--:|--:|",
        f"| plans that say that they are a toss-up | ≤ {MOST_TOSS_UPS:.0%} |"
        f" {toss_ups} of {len(found)} ({toss_ups / max(len(found), 1):.0%}) |",
        "| plans whose first place changes in a third of the draws or more, and do not say so |"
        f" 0 | {len(unlawful)} |",
        "| first places dearer and slower than another at the stated chance | 0 |"
        f" {sum(bool(one.dominated) for one in found)} |",
        "",
        *([f"No plan: {'; '.join(refused)}.", ""] if refused else []),
        "| model | first | said to be a toss-up with | changed | unsaid | else first, in draws |",
        "|---|---|---|--:|--:|---|",
        *rows,
    ])  # fmt: skip


if __name__ == "__main__":
    main()
