"""The page about the zoo: every model in its field, and layers that add up to the counts."""

import math
import re
from pathlib import Path

import pytest
from tests.sampled import zoo_names

from paceline.model.names.registry import names_of
from paceline.model.names.zoo_facts import zoo_facts

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "zoo.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def multiplied_out(formula):
    return sum(math.prod(int(n) for n in term.split("×")) for term in formula.split("+"))


def test_every_model_of_the_zoo_stands_in_one_field():
    fields = PAGE.split("Beside the zoo")[0]
    named = [name for _, models in rows(fields) for name in re.findall(r"`([^`]+)`", models)]
    assert sorted(named) == sorted(zoo_names())


def test_every_published_model_is_listed_under_its_entry():
    table = PAGE.split("Beside the zoo")[1].split("## Layer by layer")[0]
    listed = {entry.strip("`"): re.findall(r"`([^`]+)`", names) for entry, names in rows(table)}
    known: dict[str, list[str]] = {}
    for entry in names_of("published").entries:
        scheme, _, name = entry.partition(":")
        known.setdefault(f"{scheme}:NAME", []).append(name)
    assert {entry: sorted(names) for entry, names in listed.items()} == known


@pytest.mark.parametrize("name", SECTIONS)
def test_layers_add_up_to_the_count(name):
    layers = rows(SECTIONS[name])
    counts = [int(count.replace(",", "")) for _, _, count in layers]
    assert [multiplied_out(formula) for _, formula, _ in layers] == counts
    assert sum(counts) == zoo_facts()[name].parameters


def test_models_said_to_be_written_down_are():
    said = {name for name, facts in zoo_facts().items() if "layer by layer" in facts.source}
    assert said <= SECTIONS.keys()


@pytest.mark.parametrize("name", sorted(zoo_facts().keys() - SECTIONS.keys()))
def test_all_others_quote_a_published_count(name):
    facts = zoo_facts()[name]
    assert re.search(
        r"arXiv|torchvision|Keras|PyTorch|model card|Radford et al. 2019", facts.source
    )
    assert re.search(r"\d[\d,.]* (parameters|million|billion)|\d,\d{3}", facts.source)
