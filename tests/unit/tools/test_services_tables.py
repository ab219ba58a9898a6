"""Tables beside those of single sources on the page of services."""

from __future__ import annotations

import math
import random

from accuracy_serving.kept_widths import page
from accuracy_serving.over_offline import table, untold

_SERVER = "scenario=server;rate_per_s=9;ttft_p99_limit_ms=2000;tpot_p99_limit_ms=200"


def _row(scenario: str, throughput: float) -> dict[str, str]:
    return {
        "source": f"lab:A/results/x/llama/{scenario}", "model": "llama", "gpu": "H100",
        "n_gpus": "8", "precision": "fp8", "throughput": str(throughput), "notes": "org=A",
        "extra": "scenario=offline" if scenario == "Offline" else _SERVER,
    }  # fmt: skip


def _answer(throughput: float) -> dict[str, str]:
    return {"throughput_mid": str(throughput), "device": "H100 SXM5 80GB"}


def test_shares_are_of_the_same_system_offline() -> None:
    offline, server = _row("Offline", 100.0), _row("Server", 90.0)
    (asked,) = untold([offline, server])
    assert "rate_per_s" not in asked["extra"]
    *_, total, device = table([(offline, _answer(50.0))], [(asked, _answer(48.0))])
    assert total == "| all | 1 | 0.96 | 0.90 | 6.0 points |"
    assert device.startswith("| H100 SXM5 80GB | 1 |")


def test_a_server_that_did_not_run_offline_has_no_share() -> None:
    assert not list(untold([_row("Server", 90.0)]))


def test_widths_of_many_submitters_cover_those_that_they_leave_out() -> None:
    # Errors of one log-normal law, a quarter wide: any of the submitters tells it of the others.
    draw, pairs = random.Random(0), []
    for number in range(400):
        measured_s = 0.5 * math.exp(draw.gauss(0.0, 0.25))
        extra = f"{_SERVER};ttft_ms_p99={measured_s * 1e3}"
        answer = {f"ttft_p99_{bound}_s": "0.5" for bound in ("low", "mid", "high")}
        times = {f"{q}_{p}_{b}_s": "" for q in ("ttft", "tpot") for p in ("p50", "p99")
                 for b in ("low", "mid", "high")}  # fmt: skip
        pairs.append(({"extra": extra, "notes": f"org={number % 20}"}, times | answer))
    *_, line = page(pairs)
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[1:4] == ["ttft p99", "400", "20"]
    assert abs(float(cells[5]) - 0.25) < 0.03
    assert 76 <= int(cells[-2].rstrip("%")) <= 84
