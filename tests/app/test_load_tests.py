"""What a load test of a deployed service saw comes back through `calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paceline
from paceline.app.main import main
from paceline.app.truth.load_tests import row_of_load_test

RESULT = {
    "duration": 300.0, "completed": 1500, "mean_tpot_ms": 12.0, "mean_e2el_ms": 1600.0,
    "mean_ttft_ms": 60.0, "paceline_model": "llama-3-8b", "gpu": "H100 SXM5 80GB", "n_gpus": "1",
    "replicas": "1", "precision": "bf16", "framework": "vllm 0.33.0", "isl": "512", "osl": "128",
}  # fmt: skip


def written(folder: Path, **changes: object) -> Path:
    path = folder / "load-test.json"
    path.write_text(json.dumps({**RESULT, **changes}), encoding="utf-8")
    return path


def test_requests_in_flight_are_those_of_little_s_law(tmp_path: Path) -> None:
    row = row_of_load_test(written(tmp_path))
    assert float(row["global_batch"]) == pytest.approx(1500 / 300.0 * 1.6)
    halved = row_of_load_test(written(tmp_path, replicas="2", n_gpus="4"))
    assert float(halved["global_batch"]) == pytest.approx(1500 / 300.0 * 1.6 / 2)
    assert halved["parallelism"] == "tp=4"


def test_a_slow_service_makes_predictions_slower(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    assert main(["calibrate", str(written(tmp_path)), "--out", str(out)]) == 0
    asked = {"device": "h100", "rps": 5.0, "precision": "bf16"}
    before = paceline.predict("llama-3-8b", **asked).services[0]
    after = paceline.predict("llama-3-8b", calibration=out, **asked).services[0]
    assert before.per_token is not None
    assert after.per_token is not None
    assert abs(after.per_token.p50_s.mid / 0.012 - 1.0) < 0.15
    assert before.per_token.p50_s.mid < 0.9 * after.per_token.p50_s.mid


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot read"),
        ("[1]", "no result of a load test"),
        (json.dumps({"completed": 1}), "it has no duration"),
        (json.dumps({**RESULT, "duration": "soon"}), "no number"),
        (json.dumps({**RESULT, "completed": 0}), "was answered"),
    ],
)
def test_what_is_no_result_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "load-test.json"
    path.write_text(text, encoding="utf-8")
    assert main(["calibrate", str(path), "--out", str(tmp_path / "c.json")]) == 2
    assert words in capsys.readouterr().err


def test_what_requests_share_and_guess_comes_back(tmp_path: Path) -> None:
    """A result that is as fast as guesses are predicted teaches nothing new."""
    how = {"prefix_share": 0.5, "speculate": "draft=ngram,tokens=3,acceptance=0.6"}
    item = "prefix@0.5 guesses@draft@ngram,tokens@3,acceptance@0.6"
    row = row_of_load_test(written(tmp_path, item=item))
    assert row["item"] == "prefix=0.5 guesses=draft=ngram,tokens=3,acceptance=0.6"
    asked = {"device": "h100", "rps": 5.0, "precision": "bf16", **how}
    before = paceline.predict("llama-3-8b", **asked).services[0]
    assert before.per_token is not None
    assert before.request is not None
    out = tmp_path / "calibration.json"
    told = {
        "mean_tpot_ms": before.per_token.p50_s.mid * 1e3,
        "mean_e2el_ms": before.request.p50_s.mid * 1e3,
    }
    assert main(["calibrate", str(written(tmp_path, item=item, **told)), "--out", str(out)]) == 0
    after = paceline.predict("llama-3-8b", calibration=out, **asked).services[0]
    assert after.per_token is not None
    assert after.per_token.p50_s.mid == pytest.approx(before.per_token.p50_s.mid, rel=0.05)
