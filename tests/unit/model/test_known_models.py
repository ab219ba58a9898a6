"""The list of names: what it says is answered, with the size that is traced."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from traced import worker

from paceline.errors import UnknownNameError
from paceline.model.names.lookup import entry_of
from paceline.model.names.registry import known_models
from paceline.model.names.shipped_graphs import has_graph
from paceline.model.names.spelling import name_key
from paceline.shipped import shipped_rows


def test_every_name_is_listed_once():
    names = [model.name for model in known_models()]
    assert len(names) == len(set(names))
    missing = {row["name"] for row in shipped_rows("model", "models.csv")} - set(names)
    # Kernels of a CPU, and names that timm 1.0 takes no more.
    assert all("quantized_" in name or name.endswith("_224_sam") for name in missing)


def test_the_table_is_what_its_tool_writes():
    counted_with = {row["source"] for row in shipped_rows("model", "models.csv")}
    for library in ("timm", "torchvision"):
        installed = find_spec(library) and f"{library} {version(library)}"
        if installed not in counted_with:
            pytest.skip(f"the table was written with another {library}")
    from facts import models

    table = [(row["name"], row["entry"]) for row in shipped_rows("model", "models.csv")]
    assert [(name, entry) for name, entry, _ in models.named()] == table


def test_every_listed_name_is_answered():
    for model in known_models():
        entry = entry_of(model.name)
        assert has_graph(entry) == (model.needs == "nothing")
        assert model.parameters > 0


def test_every_word_must_be_held_however_it_is_spelled():
    found = known_models("LLaMA 3.1")
    assert {"llama-3.1-8b", "llama-3.1-405b"} <= {model.name for model in found}
    keys = [name_key(f"{model.name} {model.source}") for model in found]
    assert all("llama" in key and "3_1" in key for key in keys)
    assert known_models("405b llama") == known_models("llama 405B")
    assert known_models("405b llama")[0].name == "llama-3.1-405b"


def test_what_nothing_holds_has_neighbours():
    with pytest.raises(UnknownNameError, match="`lama-3-8bb`") as caught:
        known_models("lama-3-8bb")
    assert "`llama-3-8b`" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["hf:qwen3-0.6b", "hf:gpt-oss-20b", "timm:vit_base_patch16_224", "torchvision:convnext_small",
     "published_yolo:yolo11n", "falcon-7b", "opt-30b", "starcoder", "codellama-34b-hf"],
)  # fmt: skip
def test_a_size_is_that_of_the_model_that_is_traced(name):
    pytest.importorskip("transformers")
    (listed,) = (one for one in known_models() if one.name == name.removeprefix("hf:"))
    model = worker("torch_entries.subjects").build_subject({"entry": entry_of(name)}).model
    assert listed.parameters == sum(parameter.numel() for parameter in model.parameters())


def made_parameters(sizes: dict[str, int]) -> int:
    """Weights of attention, feed-forward, embedding and head; without biases and norms."""
    hidden, heads = sizes["hidden"], sizes["heads"]
    head_size = sizes.get("head_size") or hidden // heads
    attention = 2 * hidden * head_size * (heads + (sizes.get("kv_heads") or heads))
    block = attention + (2 + sizes.get("gated", 0)) * hidden * (sizes.get("ffn") or 4 * hidden)
    return sizes["layers"] * block + (2 - sizes.get("tied", 0)) * sizes["vocab"] * hidden


def test_heads_are_tied_where_the_counted_parameters_say_so() -> None:
    """A head that is tied to the embedding is counted once: a fifth of a model of 1 billion."""
    for row in shipped_rows("model", "models.csv"):
        kind, _, numbers = row["entry"].partition(":")
        if kind != "transformer" or "norm=" not in numbers:
            continue
        pairs = (pair.split("=") for pair in numbers.split(","))
        sizes = {name: int(value) for name, value in pairs if value.isdigit()}
        counted, tied = int(row["parameters"]), sizes.get("tied", 0)
        made, other = (made_parameters(sizes | {"tied": one}) for one in (tied, 1 - tied))
        if abs(other - counted) < 0.02 * counted:
            assert abs(made - counted) <= abs(other - counted), row["name"]
