"""A key that a document cannot have is told with the one that was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import Outcome

DOCUMENTS = {
    "facts": (
        "fits box --facts FILE",
        "machines: [{name: box, device: rtx 3060 12gb, num_devices: 1, power_suply_w: 550}]",
        "power_supply_w",
    ),
    "offers": (
        "devices --facts FILE",
        "offers: [{name: a/b, cloud: a, device: a100, num_devices: 1, usd_per_hours: 1}]",
        "usd_per_hour",
    ),
    "pool": ("pool FILE", "pool: {a100: 2}\njobs: {x: {modle: gpt2}}", "model"),
    "lifecycle": ("lifecycle FILE", "model: resnet50\ntran: {work: {samples: 9}}", "train"),
    "purchase": ("own FILE", "", "price_usd"),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_nearest_key_is_named(kind: str, tmp_path: Path, run: Callable[..., Outcome]) -> None:
    command, text, meant = DOCUMENTS[kind]
    path = tmp_path / ("file.toml" if kind == "purchase" else "file.yaml")
    path.write_text(text or '[a]\ntitle = "x"\npricce_usd = 3\n', encoding="utf-8")
    outcome = run(*command.replace("FILE", str(path)).split())
    outcome.assert_helpful()
    assert "no key" in outcome.err
    assert f"did you mean `{meant}`" in outcome.err
