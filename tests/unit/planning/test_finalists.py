"""What a plan lists was replayed; what the replay refuses is neither listed nor a candidate."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from tests.sampled import sampled

from paceline.catalog.load import load_catalog
from paceline.errors import DoesNotFitError
from paceline.model.reading.load import load_workload
from paceline.parallelism.replayed import ReplayedRank
from paceline.planning.explain.exclusions import fates
from paceline.planning.forecast.question import resolve_question
from paceline.planning.goal.goal import Work
from paceline.planning.goal.options import parse_goal
from paceline.planning.planner import make_plan
from paceline.planning.search import finalists as listed
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.finalists import select_replayed
from paceline.planning.search.selection import select

CATALOG = load_catalog()
TODAY = date(2026, 11, 20)
_FITS = ReplayedRank(peak_bytes=0.0, fits=True, held_bytes=0.0, beside_bytes=0.0)


@pytest.fixture(scope="module")
def search() -> Search:
    question = resolve_question(
        load_workload("gpt2"), parse_goal({"cloud": "lambda"}), Work(num_samples=10**6),
        today=TODAY,
    )  # fmt: skip
    return run_search(question, CATALOG)


@pytest.fixture
def doubts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay what surely fits, too."""
    monkeypatch.setattr(listed, "_SURE", 1.1)


@pytest.mark.parametrize(
    "name", sampled(["resnet50", "vgg16", "gpt2", "bert-large"], "resnet50", "gpt2")
)
def test_what_is_not_replayed_for_being_sure_would_have_passed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = resolve_question(
        load_workload(name),
        parse_goal({"cloud": "aws,lambda"}),
        Work(num_samples=10**6),
        today=TODAY,
    )
    found, asked = run_search(question, CATALOG), []
    monkeypatch.setattr(listed, "replayed_rank", lambda *_, **__: asked.append(1) or _FITS)
    _, selection = select_replayed(found)
    seldom = len(asked)
    monkeypatch.undo()
    monkeypatch.setattr(listed, "_SURE", 1.1)
    passed, again = select_replayed(found)
    assert (again.listed, passed.refused) == (selection.listed, found.refused)
    assert seldom < len(again.listed)


def test_every_finalist_of_whole_blocks_was_replayed(
    search: Search, doubts_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = set()
    replayed = listed.replayed_rank

    def seen(graph, configuration, strategy, **where):
        asked.add(str(strategy))
        return replayed(graph, configuration, strategy, **where)

    monkeypatch.setattr(listed, "replayed_rank", seen)
    _, selection = select_replayed(search)
    chosen = {
        strategy_of(search, row)
        for row in (*selection.listed, selection.runner_up, selection.next_offer)
        if row is not None
    }
    assert asked == {str(one) for one in chosen if one.size("pp") == 1}
    assert asked


@pytest.mark.parametrize(
    ("name", "typed", "passes"),
    [("resnet50", {}, ["forward"]), ("gpt2", {"framework": "torch"}, ["prefill", "decode"]),
     ("gpt2", {}, [])],
)  # fmt: skip
def test_inference_is_replayed_pass_by_pass_unless_an_engine_hands_out_its_memory(
    name: str,
    typed: dict[str, str],
    passes: list[str],
    doubts_all: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tier one's bound of the longest pass is not below any of them."""
    question = resolve_question(
        load_workload(name, task="infer"), parse_goal({"cloud": "lambda", **typed}),
        Work(prompt_tokens=256, output_tokens=64) if name == "gpt2" else Work(), today=TODAY,
    )  # fmt: skip
    found, asked = run_search(question, CATALOG), []
    replayed = listed.replayed_rank

    def seen(graph, configuration, strategy, **where):
        one = replayed(graph, configuration, strategy, **where)
        asked.append((graph.name, where["seq"], one.peak_bytes, where["batch"]))
        return one

    monkeypatch.setattr(listed, "replayed_rank", seen)
    _, selection = select_replayed(found)
    lengths = {seq for graph, seq, *_ in asked if "decode" in graph}
    assert lengths == ({320} if "decode" in passes else set())
    assert len(asked) % max(len(passes), 1) == 0
    assert bool(asked) == bool(passes)
    most = found.candidates.memory_high_bytes[selection.best]
    batch = found.forecast.batch[found.candidates.batch[selection.best]]
    assert all(peak <= most for _, _, peak, items in asked if items == batch)


def test_what_the_replay_refuses_is_left_out_and_says_so(
    search: Search, doubts_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = strategy_of(search, select(search).best)
    replayed = listed.replayed_rank

    def without_first(graph, configuration, strategy, **where):
        found = replayed(graph, configuration, strategy, **where)
        return replace(found, fits=found.fits and strategy != first)

    monkeypatch.setattr(listed, "replayed_rank", without_first)
    left, selection = select_replayed(search)
    assert left.refused
    assert all(strategy_of(left, row) != first for row in selection.listed)
    assert not left.is_feasible[list(left.refused)].any()
    reasons = [fate.reason for fate in fates(left, selection.best) if "replayed" in fate.reason]
    places = {int(search.candidates.place[row]) for row in left.refused}
    others = {int(place) for place in search.candidates.place[left.is_feasible]}
    assert len(reasons) == len(places - others)


def test_a_plan_of_which_nothing_runs_through_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "_fits", lambda *_: False)
    with pytest.raises(DoesNotFitError, match="replayed"):
        make_plan(
            load_workload("gpt2"), parse_goal({"cloud": "lambda"}), Work(num_samples=10**6),
            CATALOG, today=TODAY,
        )  # fmt: skip
