"""Requests that are drawn, and traces that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.simulation.queue import load as load_module
from paceline.simulation.queue.load import Lengths, Load, read_trace

_LOAD = Load(
    arrivals="poisson", prompt=Lengths(mean=512, spread=1.0), output=Lengths(mean=128, spread=0.5),
    rate_per_s=10.0, num_requests=20_000,
)  # fmt: skip


def test_lengths_have_their_mean_and_spread() -> None:
    drawn = _LOAD.requests()
    for tokens, lengths in (
        (drawn.prompt_tokens, _LOAD.prompt),
        (drawn.output_tokens, _LOAD.output),
    ):
        assert tokens.mean() == pytest.approx(lengths.mean, rel=0.03)
        assert tokens.std() / tokens.mean() == pytest.approx(lengths.spread, rel=0.08)
        assert tokens.min() >= 1


def test_arrivals_have_their_rate_and_are_the_same_requests_at_any() -> None:
    slow, fast = _LOAD.requests(), _LOAD.at_rate(40.0).requests()
    gaps = np.diff(slow.arrival_s)
    assert gaps.mean() == pytest.approx(0.1, rel=0.03)
    assert gaps.std() == pytest.approx(0.1, rel=0.03)
    np.testing.assert_allclose(fast.arrival_s * 4.0, slow.arrival_s)
    np.testing.assert_array_equal(fast.prompt_tokens, slow.prompt_tokens)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInputError, match="requests per second cannot be served"):
        _LOAD.at_rate(rate)


def test_a_loop_without_requests_and_lengths_without_tokens_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one request in flight"):
        Load(arrivals="closed", prompt=Lengths(mean=1), output=Lengths(mean=1))
    with pytest.raises(InvalidInputError, match="cannot be"):
        Lengths(mean=0)


def _trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_trace_is_read_from_its_first_arrival(tmp_path: Path) -> None:
    rows = "arrival_s,prompt_tokens,output_tokens\n100.5,10,20\n101.5,30,1\n"
    read = read_trace(_trace(tmp_path, rows))
    assert read.arrival_s.tolist() == [0.0, 1.0]
    assert read.prompt_tokens.tolist() == [10, 30]
    assert read.output_tokens.tolist() == [20, 1]


_HEADER = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_HEADER + "1,10,20\n0.5,10,20\n", "line 3 of the trace .* comes before the line above"),
        (_HEADER + "0,0,20\n", "line 2 .* at least one token in and one out"),
        (_HEADER + "0,5,0\n", "line 2 .* at least one token in and one out"),
        (_HEADER + "0,5,x\n", "line 2 .* has no three numbers"),
        (_HEADER + "0,5\n", "line 2 .* has no three numbers"),
        ("time,prompt_tokens,output_tokens\n0,1,1\n", "has the columns time"),
        (_HEADER, "has 0 requests"),
        ("", "has the columns nothing"),
    ],
)
def test_a_bad_trace_has_one_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_trace(_trace(tmp_path, text))


def test_a_trace_of_too_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "MAX_TRACE_ROWS", 2)
    with pytest.raises(InvalidInputError, match="has 3 requests"):
        read_trace(_trace(tmp_path, _HEADER + "0,1,1\n" * 3))


def test_no_trace_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read the trace"):
        read_trace(tmp_path / "none.csv")
