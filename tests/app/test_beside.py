"""Two kinds of device in one question: the table, the data, and what is refused."""

from __future__ import annotations

import json

import pytest

from paceline.app.main import main
from paceline.app.requests.mixed_devices import read_beside, shared_batch
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.planning.decisions.device_counts import BatchRule
from paceline.simulation.unequal import Part

ASKED = ("scale", "gpt2", "--device", "H100", "--counts", "8", "--beside", "A100 SXM4 80GB:8")


def test_the_table_names_both_kinds_and_what_their_shares_are_worth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*ASKED]) == 0
    written = capsys.readouterr().out
    assert "H100 SXM5 80GB" in written
    assert "A100 SXM4 80GB" in written
    assert "equal shares:" in written
    assert "the better kind alone:" in written


def test_the_data_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--global-batch", "480", "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["step"]
    assert sum(s["count"] * s["items_per_device"] for s in step["shares"]) == 480
    assert step["items_per_s"] == pytest.approx(480 / step["step_s"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--strategy", "tp8"), "these devices are unequal"),
        (("--counts", "4,8"), "2 device counts beside other devices"),
        (("--beside", "A100"), "names no other devices"),
        (("--beside", "A100:0"), "names no other devices"),
        (("--beside", "nothing such:8"), "nothing such"),
        (("--global-batch", "900000000"), "of an epoch"),
    ],
)
def test_what_cannot_be_says_why(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option, value = more
    place = ASKED.index(option) if option in ASKED else len(ASKED)
    assert main([*ASKED[:place], option, value, *ASKED[place + 2 :]]) == 2
    written = capsys.readouterr().err
    assert said in written
    assert "hint: " in written


def test_names_may_have_colons_and_blanks() -> None:
    assert read_beside("own:box:4") == ("own:box", 4)
    with pytest.raises(InvalidInputError, match="names no other devices"):
        read_beside(":8")


def test_the_batch_is_what_was_asked_or_keeps_all_busy_within_the_recipe() -> None:
    device = find_device(load_catalog(), "H100 SXM5 80GB")
    one = Cluster(device=device, devices_per_node=8, device_link=None, node_link=None)
    parts = Part(cluster=one, count=8), Part(cluster=one, count=4)

    def batch(**rule: int) -> int:
        return shared_batch(BatchRule(**rule), parts, lambda part: 16)

    assert batch(global_batch=96) == 96
    assert batch(batch_per_device=2) == 24
    assert batch() == 12 * 16
    assert batch(max_global_batch=100) == 96
