"""The launch command that a plan ends with runs as it is, on every kind of place."""

import re

import pytest

from paceline.app.main import main
from paceline.catalog.load import load_catalog

OFFERS = [offer for offer in load_catalog().offers if offer.status == "listed"]
#: One offer of each cloud and device that has a price.
FIRST = {
    (offer.cloud, offer.device_name): offer.name
    for offer in reversed(OFFERS)
    if offer.usd_per_hour and offer.device_name
}


@pytest.mark.parametrize("offer", list(FIRST.values())[::12])
def test_the_command_that_a_plan_ends_with_writes_its_files(offer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "resnet50", "--epochs", "1", "--pin", f"offer={offer}"]) == 0
    words = re.search(r"paceline (deploy plan.yaml --to \w+)", capsys.readouterr().out)
    assert words is not None
    assert main([*words[1].split(), "--command", "python train.py"]) == 0, capsys.readouterr().err
