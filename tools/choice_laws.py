"""Laws of the first place, over the whole zoo: toss-ups, draws of the noise, and dominance.

Usage: python tools/choice_laws.py [--draws 1000] [--only NAME,…] [--as-of DAY] [--out FILE]
Each model of the zoo is planned as `plan NAME` plans it. Then every figure is drawn from its own
interval, with what candidates share drawn once for all, from other random numbers than the rule
draws. A draw overturns a plan where another offer (a device at a provider) is better by what
matters than the offer in first place. The rule is asked again with each draw too: what it names
then is counted beside that, as an offer and with its number of devices and its strategy.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pages import deliver

from paceline.app.requests.plan_request import read_request
from paceline.errors import PacelineError
from paceline.model.graph.graph import FloatArray
from paceline.model.names.zoo_facts import zoo_facts
from paceline.planning.explain.reasons import why
from paceline.planning.explain.wording import candidate_name
from paceline.planning.forecast.question import resolve_question
from paceline.planning.places.place_table import BoolArray
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.more_devices import finished, opening
from paceline.planning.search.pareto import Index
from paceline.planning.search.preference import Standing, competing
from paceline.planning.search.selection import Selection, second_axis, select

#: Limits of the laws: share of draws that overturn a plan, and of the zoo that is a toss-up.
MOST_CHANGED, MOST_TOSS_UPS = 1 / 3, 0.2
#: The rule draws from the seed 0.
_SEED = 1
#: Candidates further from the best than this factor never win a draw.
_FAR = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one model's plan showed.

    Attributes:
        model: Its name.
        first: The first place, in words.
        why: The sentence that defends it.
        toss_up: What the plan says that it is a toss-up with; empty if with nothing.
        overturned: Share of draws in which another offer is better by what matters.
        unsaid: The same, where what is named a toss-up is not as good as the best either.
        renamed: Share of draws after which the rule names another offer.
        changed: Share after which it names another count or strategy, or another offer.
        dominated: A candidate that is cheaper by what matters and faster at the stated chance;
            empty if there is none.
    """

    model: str
    first: str
    why: str
    toss_up: str
    overturned: float
    unsaid: float
    renamed: float
    changed: float
    dominated: str

    @property
    def is_lawful(self) -> bool:
        """Whether the noise overturns it seldom, or in favour of what it names."""
        return self.overturned < MOST_CHANGED or bool(self.toss_up)


def main() -> None:
    """Plan the zoo and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
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
    first = opening(question, request.catalog)
    search = run_search(first.question, request.catalog, has_meshes=first.has_meshes)
    return judged(name, finished(search, question, request.catalog), num_draws)


def judged(name: str, search: Search, num_draws: int) -> Found:
    """A search under the laws."""
    chosen, standing = select(search), Standing.of(search)
    rows = _one_of_each(search, standing, chosen)
    drawn = search.objective[rows] * np.exp(standing.draws(rows, num_draws, _SEED))
    offers, best = standing.price_list, _words(search, chosen.best)
    named = [offers[row] for row in (chosen.best, chosen.toss_up) if row is not None]
    is_good = drawn <= standing.least_worse(drawn.min(axis=1))[:, None]
    again = [_again(search, standing, rows, values) for values in drawn]
    return Found(
        model=name,
        first=best,
        why=why(search, chosen)[0],
        toss_up="" if chosen.toss_up is None else _words(search, chosen.toss_up),
        overturned=_without(is_good[:, offers[rows] == named[0]]),
        unsaid=_without(is_good[:, np.isin(offers[rows], named)]),
        renamed=float(np.mean([offers[row] != named[0] for row in again])),
        changed=float(np.mean([_words(search, row) != best for row in again])),
        dominated=dominator(search, chosen),
    )


def _without(is_good: BoolArray) -> float:
    """Share of draws in which none is, (num_draws, num_candidates)."""
    return 1.0 - float(is_good.any(axis=1).mean())


def _again(search: Search, standing: Standing, rows: Index, values: FloatArray) -> int:
    """What the rule names where the objectives of some rows are others."""
    objective = search.objective.copy()
    objective[rows] = values
    first = replace(standing, objective=objective).first(rows)
    assert first is not None
    return first


def _one_of_each(search: Search, standing: Standing, chosen: Selection) -> Index:
    """Of each place, count and kind of strategy the best row: what a headline tells apart."""
    rows, table = competing(search, search.is_feasible), search.candidates
    rows = rows[search.objective[rows] < _FAR * search.objective[chosen.best] + standing.matters]
    rows = np.concatenate([[chosen.best], rows[np.argsort(search.objective[rows], kind="stable")]])
    keys = np.stack([table.place[rows], table.num_nodes[rows], search.kinds[rows]])
    _, firsts = np.unique(keys, axis=1, return_index=True)
    return rows[np.sort(firsts)]


def dominator(search: Search, chosen: Selection) -> str:
    """A candidate that is told to be better and is no slower than the first, in words."""
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    worse = rows[standing.is_told_worse(chosen.best, rows)]  # By what matters.
    second = second_axis(search)
    both = worse[second[worse] <= second[chosen.best]]
    return _words(search, int(both[0])) if len(both) else ""


def _words(search: Search, row: int) -> str:
    strategy = re.sub(r"/mb\d+", "", str(strategy_of(search, row)))
    return f"{candidate_name(search, row)} {strategy}"


def page(found: list[Found], refused: list[str], num_draws: int) -> str:
    """The page, worst first."""
    toss_ups = sum(bool(one.toss_up) for one in found)
    order = sorted(found, key=lambda one: (one.is_lawful, -one.overturned, -one.renamed))
    rows = [
        f"| {one.model} | {one.first} | {one.toss_up or '–'} | {one.overturned:.0%} |"
        f" {one.unsaid:.0%} | {one.renamed:.0%} | {one.changed:.0%} |"
        for one in order
    ]
    return "\n".join([
        "# Laws of the first place",
        "",
        "`python tools/choice_laws.py` plans every model of the zoo as `plan NAME` does and draws",
        f"all figures {num_draws} times from their intervals, with other random numbers than those",
        "by which the rule chooses. *Overturned*: another offer, a device at a provider, is better",
        "in the draw by what matters (10 % of the cost, and what a person earns in a minute) than",
        "the offer in first place, at any count. *Unsaid*: and than the one that is named a",
        "toss-up. *Renamed*: the rule, asked again with the drawn figures and as much doubt about",
        "them, names another offer; *or rescaled*: or another number of the same devices, or",
        "another strategy.",
        "",
        "| law | asked | found |",
        "|---|--:|--:|",
        f"| plans that say that they are a toss-up | ≤ {MOST_TOSS_UPS:.0%} |"
        f" {toss_ups} of {len(found)} ({toss_ups / max(len(found), 1):.0%}) |",
        "| plans that a third of the draws or more overturn, and that do not say so | 0 |"
        f" {sum(not one.is_lawful for one in found)} |",
        "| plans that a third or more rename (stricter than the law) | – |"
        f" {sum(one.renamed >= MOST_CHANGED for one in found)} |",
        "| plans that a third or more rename or rescale | – |"
        f" {sum(one.changed >= MOST_CHANGED for one in found)} |",
        "| first places dearer and slower than another at the stated chance | 0 |"
        f" {sum(bool(one.dominated) for one in found)} |",
        "",
        *([f"No plan: {'; '.join(refused)}.", ""] if refused else []),
        "| model | first | said to be a toss-up with | overturned | unsaid | renamed"
        " | or rescaled |",
        "|---|---|---|--:|--:|--:|--:|",
        *rows,
        "",
        "## Why each stands first",
        "",
        *(f"- {one.model}: {one.why}." for one in sorted(found, key=lambda one: one.model)),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
