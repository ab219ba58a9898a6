"""Names of tables and of people's own trainings mean one entry, and say so."""

import pytest
from tests.sampled import sampled

from paceline.errors import UnknownNameError
from paceline.model.names.lookup import entry_of, reading_of
from paceline.model.names.published_names import published_entry, without_target
from paceline.model.reading.load import load_workload


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


@pytest.mark.parametrize(
    "typed",
    [
        "deepseek-v3.9", "deepseek-coder-33b-77b", "baichuan2-13b-77b", "chroma2",
        "qwen-image-2", "omnigen2", "auraflow-9.5", "bertweet-base9", "hunyuanvideo-1.7",
    ],
)  # fmt: skip
def test_another_version_or_size_behind_a_known_name_is_not_taken_for_it(typed: str) -> None:
    with pytest.raises(UnknownNameError):
        entry_of(typed)


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("deepseek-v3-0324", "deepseek-v3"),
        ("deepseek-v3.1", "deepseek-v3"),
        ("bge-large-en-v1.5", "bge-large"),
        ("phi-3-medium-128k-instruct", "phi-3-medium"),
        ("chroma1-hd", "chroma"),
        ("LTX-Video-0.9.8-13B-distilled", "LTX-Video-0.9.8-13B"),
        ("LTX-Video-0.9.5", "LTX-Video-0.9.1"),
    ],
)
def test_another_release_of_a_size_is_that_size(typed: str, known: str) -> None:
    assert entry_of(typed) == entry_of(known)


def test_the_larger_of_two_films_is_no_smaller() -> None:
    small, large = (entry_of(f"LTX-Video-{name}") for name in ("0.9.8-2B", "0.9.8-13B"))
    assert "hidden=2048" in small
    assert "hidden=4096" in large


@pytest.mark.parametrize("typed", ["llava-next", "openvla-7b", "pixtral-12b-2409"])
def test_a_model_that_is_answered_by_its_language_part_says_so(typed: str) -> None:
    assert "language model" in load_workload(typed, task="infer").reading


@pytest.mark.parametrize(
    ("typed", "parameters"),
    sampled(
        [
            ("internlm/internlm3-8b-instruct", 8.80e9),
            ("XiaomiMiMo/MiMo-7B-Base", 7.62e9),
            ("tiiuae/falcon-11B", 11.1e9),
            ("h2oai/h2o-danube3-4b-chat", 3.96e9),
            ("openlm-research/open_llama_3b_v2", 3.43e9),
            ("CohereForAI/aya-23-35B", 35.0e9),
            ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 30.5e9),
        ],
        "XiaomiMiMo/MiMo-7B-Base",
        "h2oai/h2o-danube3-4b-chat",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    ),
)
def test_parameters_are_those_of_the_release(typed: str, parameters: float) -> None:
    """Cards of the models on huggingface.co (recalled); MiMo's without its 0.2 of guessing."""
    assert load_workload(typed, task="infer").num_parameters == pytest.approx(parameters, rel=0.01)
