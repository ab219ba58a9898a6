"""Public functions take arguments as a notebook writes them, and refuse what nobody can mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline

_AS_OF = "2026-11-20"


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        ({"batch": 8}, {"batch": (8,)}),
        ({"batch": "8,16"}, {"batch": (8, 16)}),
        ({"batch": np.array([8, 16])}, {"batch": (8, 16)}),
        ({"batch": 8, "devices": 2}, {"batch": (8,), "devices": (2,)}),
        ({"batch": 8, "device": ["t4", "l4"]}, {"batch": (8,), "device": "t4,l4"}),
        ({"batch": 8, "precision": ("fp32", "fp16")}, {"batch": (8,), "precision": "fp32,fp16"}),
        ({"batch": 8, "image_size": "28"}, {"batch": (8,), "image_size": 28}),
    ],
)
def test_one_value_or_several_may_be_written_as_they_come_to_mind(
    loose: dict[str, Any], strict: dict[str, Any]
) -> None:
    answers = [paceline.predict("mnist-cnn", **{"device": "l4", **one}) for one in (loose, strict)]
    assert answers[0].cells == answers[1].cells


def test_a_file_of_facts_may_be_named_by_its_text(tmp_path: Path) -> None:
    facts = tmp_path / "own.toml"
    facts.write_text('[[machines]]\nname = "desk"\ndevice = "GTX 1650"\nnum_devices = 1\n')
    given: dict[str, Any] = {"counts": 1, "facts": str(facts)}
    assert paceline.scale("mnist-cnn", device="t4", as_of=_AS_OF, **given)


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("predict", {"model": "mnist-cnn", "device": "t4", "batch": "many"}),
        ("predict", {"model": "mnist-cnn", "device": "t4", "devices": [1.5]}),
        ("predict", {"model": "mnist-cnn", "device": "t4", "facts": 3}),
        ("scale", {"model": "mnist-cnn", "device": "t4", "counts": {"one": 1}}),
        ("trace", {"model": "mnist-cnn", "batch": "all"}),
        ("feed", {"data": "imagenet", "cores": object()}),
        ("devices", {"min_memory": 24}),
        ("bill", {"offer": "aws/p4d.24xlarge", "duration": 10}),
    ],
)
def test_what_nobody_can_mean_is_refused_with_a_hint(verb: str, asked: dict[str, Any]) -> None:
    with pytest.raises(paceline.PacelineError) as caught:
        getattr(paceline, verb)(**asked)
    assert caught.value.hint
