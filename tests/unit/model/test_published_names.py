"""Names of tables and of people's own trainings mean one entry, and say so."""

import pytest

from paceline.errors import UnknownNameError
from paceline.model.names.lookup import entry_of, reading_of
from paceline.model.names.published_names import published_entry, without_target


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("gptj-99.9", "hf:gpt-j-6b"),
        ("3d-unet-99", "published_volumes:unet3d"),
        ("llama2-70b-99", "hf:llama-2-70b"),
        ("ncf (movielens-1m)", "published:ncf"),
        ("PNASNet-5", "timm:pnasnet5large"),
        ("COCO-Detection/faster_rcnn_R_50_FPN_1x", "detectron2:faster_rcnn_R_50_FPN"),
    ],
)
def test_a_name_of_a_table_is_read_where_it_is_typed(typed, entry):
    assert entry_of(typed) == entry


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("someone/mistral-7b-medical-notes", "hf:mistral-7b"),
        ("someone/wise-owl-qwen2.5-7b", "hf:qwen2.5-7b"),
        ("someone/trocr-large-receipts", "hf:trocr-large"),
    ],
)
def test_a_training_of_a_known_size_is_that_size_and_is_told(typed, entry):
    assert entry_of(typed) == entry
    assert reading_of(typed).startswith(f"`{typed}` is taken as")


@pytest.mark.parametrize(
    "typed",
    [
        "someone/performer-roberta-base",
        "someone/wise-qwen2.5-7b-and-3b",
        "someone/vit-base-patch13-test",
        "someone/draft-qwen2.5-7b",
        "my notes on qwen2.5-7b",
    ],
)
def test_what_may_be_another_network_is_not_taken_for_a_training(typed):
    with pytest.raises(UnknownNameError):
        entry_of(typed)


def test_a_line_with_conditions_is_not_meant_by_a_name_alone():
    assert published_entry("swin-t-of-nobody") is None
    assert without_target("bert-99.9") == "bert"
    assert published_entry("bert-99") == "published:bert_squad_large"
