"""`--framework NAME:RELEASE`: what a release does, alike in `predict`, `scale` and `plan`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from refusals import Outcome

Run = Callable[..., Outcome]
CALLS = {
    "predict": "predict gpt2 --device v100 --batch 4",
    "scale": "scale gpt2 --device v100 --counts 8 --batch 4 --as-of 2026-11-20",
    "plan": "plan gpt2 --device v100 --max-devices 2 --as-of 2026-11-20",
}
verbs = pytest.mark.parametrize("verb", CALLS)


def answer(run: Run, verb: str, *words: str) -> str:
    done = run(*CALLS[verb].split(), *words)
    assert done.status == 0, done.err
    return " ".join(done.out.split())


@verbs
def test_a_release_runs_as_it_did_and_says_so(run: Run, verb: str) -> None:
    said = "as torch:1.13 does unless --rewrite says otherwise: optimizer_kernel=plain, attention"
    assert said in answer(run, verb, "--framework", "torch:1.13")


@verbs
def test_what_is_stated_wins_over_a_release(run: Run, verb: str) -> None:
    told = answer(run, verb, "--framework", "torch:1.13", "--rewrite", "attention=flash")
    assert "attention=math" not in told
    assert "optimizer_kernel=plain" in told


@verbs
def test_another_framework_is_dispatched_by_its_own_host(run: Run, verb: str) -> None:
    assert answer(run, verb, "--framework", "tensorflow") != answer(run, verb)


@verbs
def test_a_release_without_a_date_is_refused(run: Run, verb: str) -> None:
    run(*CALLS[verb].split(), "--framework", "torch:9.9").assert_helpful()


def test_a_plan_pins_the_release_that_was_asked_for(run: Run) -> None:
    assert "torch 1.13" in answer(run, "plan", "--framework", "torch:1.13")
