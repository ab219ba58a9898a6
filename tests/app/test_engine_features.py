"""Found prefixes, adapters and guessed tokens, asked of `predict`, `plan` and `score`."""

from __future__ import annotations

import itertools

import pytest

import paceline
from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError
from paceline.planning.forecast.services import ServiceCell
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.completion import completed
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

_DEVICE = "H100 SXM5 80GB"
_GUESSES = "draft=ngram,tokens=3,acceptance=0.6"
_ADAPTERS = "count=16,rank=16,loaded=8"
_FEATURES = {"prefix_share": 0.5, "speculate": _GUESSES, "adapters": _ADAPTERS}


def _cell(rps: float = 4, **features: object) -> ServiceCell:
    return paceline.predict(
        "llama-3-8b", device=_DEVICE, devices=(1,), rps=rps, precision="bf16", **features
    ).services[0]


def _step_s(batch: int, **features: object) -> float:
    grid = paceline.predict(
        "llama-3-8b", task="infer", device=_DEVICE, batch=(batch,), precision="bf16", **features
    )
    assert grid.cells[0].latency_s is not None
    return grid.cells[0].latency_s.mid


def test_nothing_found_is_what_it_was_to_the_bit() -> None:
    assert _cell(prefix_share=0) == _cell()


def test_more_that_is_found_brings_sooner_tokens_and_more_requests() -> None:
    cells = [_cell(prefix_share=share) for share in (0.0, 0.45, 0.9)]
    for less, more in itertools.pairwise(cells):
        assert less.first_token is not None
        assert more.first_token is not None
        assert more.first_token.p50_s.mid < less.first_token.p50_s.mid
        assert less.capacity_requests_per_s is not None
        assert more.capacity_requests_per_s is not None
        assert more.capacity_requests_per_s.mid > less.capacity_requests_per_s.mid


@pytest.mark.parametrize("draft", ["ngram", "mtp", "llama-3.2-1b"])
def test_guesses_that_are_never_kept_cost_time(draft: str) -> None:
    for batch in (1, 64):
        slower = _step_s(batch, speculate=f"draft={draft},tokens=3,acceptance=0")
        assert slower > _step_s(batch)


def test_what_guesses_gain_shrinks_as_more_requests_share_a_step() -> None:
    gains = [
        _step_s(batch) / _step_s(batch, speculate="draft=llama-3.2-1b,tokens=4,acceptance=0.7")
        for batch in (1, 32, 256)
    ]
    assert gains[0] > 1.3
    assert gains[0] > gains[1] > gains[2]
    assert gains[2] < 1.0


def test_adapters_cost_what_their_authors_measured() -> None:
    """Punica (arXiv:2310.18547, abstract): 2 ms a token, Llama 2 7B on A100, up to 32 requests."""
    for batch in (1, 32):
        took = [
            paceline.predict(
                "llama-2-7b", task="infer", device="A100 SXM4 80GB", batch=(batch,),
                precision="bf16", **options,
            ).cells[0].latency_s
            for options in ({}, {"adapters": "count=32,rank=16"})
        ]  # fmt: skip
        assert took[0] is not None
        assert took[1] is not None
        assert 1e-3 < took[1].mid - took[0].mid < 4e-3


def test_more_adapters_than_memory_are_told_to_be_fewer_at_once() -> None:
    grid = paceline.predict("llama-2-7b", device=_DEVICE, adapters="count=10000,rank=16")
    assert grid.cells[0].status == "out of memory"
    assert grid.remedies[0].endswith("--adapters count=10000,rank=16,loaded=8")


def test_a_row_is_answered_as_predict_answers() -> None:
    cell = _cell(framework="vLLM 0.19", **_FEATURES)
    row = {
        "model": "llama-3-8b",
        "task": "infer",
        "framework": "vLLM 0.19",
        "precision": "bf16",
        "gpu": _DEVICE,
        "n_gpus": "1",
        "unit": "requests/s",
        "extra": "scenario=server;isl=512;osl=128;rate_per_s=4;prefix_share=0.5;"
        f"speculate={_GUESSES};adapters={_ADAPTERS}",
    }
    answer = predict_rows(
        [parse_row(completed(row))], catalog=load_catalog(), calibration=builtin_calibration()
    )[0]
    assert answer.first_token is not None
    assert answer.per_token is not None
    assert cell.first_token is not None
    assert cell.per_token is not None
    assert answer.first_token.p50_mid_s == pytest.approx(cell.first_token.p50_s.mid, rel=1e-6)
    assert answer.per_token.p99_mid_s == pytest.approx(cell.per_token.p99_s.mid, rel=1e-6)


def test_a_plan_has_what_predict_has_and_says_what_it_took() -> None:
    cell = _cell(**_FEATURES)
    plan = paceline.plan(
        "llama-3-8b", rps=4, tpot="50ms", ttft="1s", device=_DEVICE, max_devices=1,
        precision="bf16", as_of="2026-11-20", cloud="lambda", **_FEATURES,
    )  # fmt: skip
    choice = plan.choices[0]
    assert cell.per_token is not None
    assert choice.latency_s is not None
    assert choice.latency_s.mid == pytest.approx(cell.per_token.p95_s.mid, rel=1e-6)
    said = " ".join(plan.assumptions)
    assert "50 % of each prompt is found in the cache" in said
    assert "3 tokens guessed by copies" in said
    assert "16 LoRA adapters of rank 16, any as likely to be asked for, 8 of them" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix_share": 1.2}, "a share of 1.2"),
        ({"prefix_share": "much"}, "`much`"),
        ({"speculate": "draft=ngram,tokens=4,acceptance=1"}, "acceptance of 1 cannot be"),
        ({"speculate": "draft=llama-2-70b,tokens=4,acceptance=0.7"}, "is no smaller"),
        ({"speculate": "draft=nobody-knows,tokens=4,acceptance=0.7"}, "nobody-knows"),
        ({"adapters": "count=4,rank=0"}, "rank=0 cannot be"),
        ({"adapters": "many"}, "`--adapters many` cannot be read"),
        ({"prefix_share": 0.5, "framework": "torch"}, "what engines do"),
        ({"prefix_share": 0.5, "task": "train"}, "nothing is answered in training"),
    ],
)
def test_what_cannot_be_is_one_message(options: dict[str, object], message: str) -> None:
    with pytest.raises(paceline.PacelineError, match=message):
        paceline.predict("llama-3-8b", device=_DEVICE, **options)


def test_a_model_that_writes_nothing_finds_nothing() -> None:
    with pytest.raises(InvalidInputError, match="writes no answer"):
        paceline.predict("resnet50", device=_DEVICE, prefix_share=0.5)
