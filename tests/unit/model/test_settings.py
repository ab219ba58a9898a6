"""How a model is run, as a line of text."""

from dataclasses import fields

import pytest

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.settings import WORDS_OF_OTHERS, read_settings

VALUES = {
    "precision": ("fp8", "fp8"), "compiler": ("xla", "xla"), "checkpointing": ("full", "full"),
    "platform": ("rocm", "rocm"), "channels_last": ("no", False), "attention": ("math", "math"),
    "optimizer_kernel": ("fused", "fused"), "frozen": ("features.*|head", ("features.*", "head")),
    "lora_rank": ("16", 16), "lora_modules": ("*.q", ("*.q",)), "offload": ("optimizer",) * 2,
    "training_format": ("pure", "pure"), "accumulates": ("yes", True),
    "frozen_weights": ("int4", "int4"), "inference_format": ("autocast", "autocast"),
    "loss": ("chunked", "chunked"), "adapter_inputs": ("cast", "cast"),
    "lora_kind": ("dora", "dora"),
    "results": ("dropped", "dropped"), "checkpoint_inputs": ("kept", "kept"),
    "frozen_products": ("cast", "cast"), "gradient_buffers": ("500000000", 500_000_000),
    "update": ("in-backward", "in-backward"), "peaks": ("rough", "rough"),
    "objective": ("dpo", "dpo"), "table_updates": ("sparse", "sparse"),
}  # fmt: skip


def written(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "|".join(value) if isinstance(value, tuple) else str(value)


def test_every_field_can_be_written_and_read_back():
    """But none, which is stated by no word: no names, adapters of no rank, and no buffers."""
    for field in fields(Configuration):
        numbers = ("lora_rank", "num_adapters", "gradient_buffers")
        if field.default != () and field.name not in numbers:
            text = f"{field.name}={written(field.default)}"
            assert read_settings(text, Configuration()) == Configuration()


def test_every_kind_of_field_can_be_changed():
    for name, (text, value) in VALUES.items():
        changed = read_settings(f"{name}={text}", Configuration())
        assert getattr(changed, name) == value != getattr(Configuration(), name)


def test_settings_add_up_and_leave_the_rest():
    base = Configuration(attention="math")
    changed = read_settings(" checkpointing = full , lora_rank=8,", base)
    assert changed == Configuration(attention="math", checkpointing="full", lora_rank=8)
    assert read_settings("", base) == base


@pytest.mark.parametrize("text", ["checkpoint=full", "checkpointing=ful", "platform=tpu"])
def test_a_name_that_is_none_has_neighbours(text):
    with pytest.raises(UnknownNameError):
        read_settings(text, Configuration())


def test_the_rank_of_a_kind_of_adapter_is_said_as_it_is_written():
    with pytest.raises(UnknownNameError) as raised:
        read_settings("dora_rank=8", Configuration())
    hint = raised.value.hint.removeprefix("write ")
    assert read_settings(hint, Configuration()) == Configuration(lora_rank=8, lora_kind="dora")


@pytest.mark.parametrize(
    "text", ["full", "lora_rank=0", "lora_rank=-1", "lora_rank=many", "accumulates=maybe"]
)
def test_a_value_of_another_kind_is_refused(text):
    with pytest.raises(InvalidInputError):
        read_settings(text, Configuration())


@pytest.mark.parametrize(("here", "words"), WORDS_OF_OTHERS.items())
def test_words_of_other_tools_are_no_settings_and_what_they_mean_can_be_read(
    here: str, words: str
) -> None:
    names = {field.name for field in fields(Configuration)}
    assert names.isdisjoint(words.split())
    meant = here.strip("`")
    if not here.startswith("the option"):
        name, _, value = meant.partition("=")
        assert written(getattr(read_settings(meant, Configuration()), name)) == value
    for word in words.split():
        with pytest.raises(UnknownNameError) as caught:
            read_settings(f"{word}=1", Configuration())
        assert meant in (caught.value.hint or "")
