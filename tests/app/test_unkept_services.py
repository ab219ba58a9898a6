"""Services whose goal nothing keeps: the hint says what would be kept, and it is."""

from __future__ import annotations

import re

import pytest

import paceline

ASKED = {"task": "infer", "prompt_tokens": 6000, "output_tokens": 200, "rps": 1.0}


@pytest.mark.parametrize(("option", "strict"), [("ttft", "60ms"), ("tpot", "1ms")])
def test_what_the_hint_says_is_kept(option: str, strict: str) -> None:
    devices = {"device": "l40s", "max_devices": 2, "cloud": "runpod"}
    with pytest.raises(paceline.NoOfferError, match=f"--{option} excludes") as refused:
        paceline.plan("mistral-7b", **ASKED, **devices, **{option: strict})
    kept = re.search(rf"it keeps --{option} (\S+)", refused.value.hint)
    assert kept is not None
    plan = paceline.plan("mistral-7b", **ASKED, **devices, **{option: kept[1]})
    assert plan.choices


def test_a_rate_beyond_all_devices_is_told_with_how_many_there_may_be() -> None:
    with pytest.raises(paceline.NoOfferError, match="--rps excludes") as refused:
        paceline.plan("mistral-7b", **{**ASKED, "rps": 1e5}, device="l40s", max_devices=4)
    kept = re.search(
        r"it keeps --rps ([\d.]+), or raise --max-devices \(now 4\)", refused.value.hint
    )
    assert kept is not None
