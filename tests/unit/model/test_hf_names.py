"""Models of transformers by name: the parameter counts of their releases, and mistakes.

``data/hf_published.csv`` holds what the metadata of each release's weights adds up to (recalled).
"""

import csv
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.names.registry import known_models
from paceline.model.reading.worker import reported_error

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "src" / "paceline" / "frontends" / "torch"))

from torch_entries.subjects import RequestError, build_subject  # noqa: E402
from torch_transformers import families, stated  # noqa: E402
from torch_transformers.families import hf_subject  # noqa: E402

TABLE = (Path(__file__).parent / "data" / "hf_published.csv").read_text(encoding="utf-8")
PUBLISHED = {row["name"]: int(row["parameters"]) for row in csv.DictReader(TABLE.splitlines())}
FAST = ("llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2-2b", "phi-3-mini",
        "distilbert-base", "t5-small", "whisper-tiny", "vit-base", "clip-vit-b-32")  # fmt: skip
FAMILIES = ("llama-1", "llama-2", "llama-3", "mistral", "mixtral", "qwen", "gemma", "phi", "bert",
            "t5", "whisper", "vit", "clip", "gpt2")  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in PUBLISHED]
)
def test_a_known_name_has_the_parameters_of_its_release(name):
    model = hf_subject(name, {}).model
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_every_family_has_known_names_and_the_page_lists_them_all():
    known = stated.known()
    assert all(any(name.startswith(family) for name in known) for family in FAMILIES)
    page = (ROOT / "docs" / "how-to" / "own-model.md").read_text(encoding="utf-8")
    listed = page.split("<!-- names of hf: -->")[1].split("<!-- end -->")[0]
    assert sorted(re.findall(r"`([^`]+)`", listed)) == sorted(known)


def error_of(entry):
    """What a user sees of the request that a worker refuses."""
    with pytest.raises(RequestError) as caught:
        build_subject({"entry": entry})
    event = {"kind": caught.value.kind, "message": str(caught.value)}
    return reported_error(event, entry, "python")


@pytest.mark.parametrize(("name", "length"), [("clip-vit-b-32", 77), ("whisper-tiny", 448),
                                              ("gpt2", 1024), ("vit-base", None)])  # fmt: skip
def test_positions_bound_the_length(name, length):
    assert hf_subject(name, {}).longest == length


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is no JSON"),
        ("[1]", "holds no settings"),
        ('{"hidden_size": 3}', "no `model_type`"),
        ('{"model_type": "llama", "architectures": ["Foo"]}', "no class `Foo`"),
        ('{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 3}', "not a multiple"),
    ],
)
def test_a_config_that_cannot_be_used_says_why(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    error = error_of(f"hf:{tmp_path}")
    assert isinstance(error, InvalidInputError)
    assert message in str(error)
    assert "config.json" in error.hint


def test_a_config_that_is_not_there_is_said(tmp_path):
    assert "No such file" in str(error_of(f"hf:{tmp_path}/none.json"))


@pytest.mark.parametrize(
    ("entry", "near"),
    [("hf:llama-3-8", "llama-3-8b"), ("hf:qwen", "qwen2"), ("timm:resnet19", "resnet18"),
     ("torchvision:resnet19", "resnet18")],
)  # fmt: skip
def test_a_name_that_is_none_has_neighbours(entry, near):
    error = error_of(entry)
    assert isinstance(error, UnknownNameError)
    assert f"`{near}`" in error.hint
    assert "--help" not in error.hint


@pytest.mark.parametrize("entry", ["hf:qwen3-8b", "hf:qwen3-8b,num_hidden_layers=2"])
def test_a_listed_name_that_a_library_has_not_asks_for_a_newer_one(entry, monkeypatch):
    """It was said to be no name at all, and to be like names of other models."""
    mapping = importlib.import_module("transformers.models.auto.configuration_auto")
    monkeypatch.delitem(mapping.CONFIG_MAPPING_NAMES, "qwen3")
    error = error_of(entry)
    assert isinstance(error, InvalidInputError)
    assert "the transformers of `python` has no `qwen3`" in str(error)
    assert "`python -m pip install -U transformers`" in error.hint
    assert "--python PATH" in error.hint


def test_what_a_library_fails_at_is_not_the_users_own():
    event = {"kind": "raised", "message": "AttributeError: 'NoneType'", "details": "no frames"}
    assert "another release of transformers" in reported_error(event, "hf:gpt2", "python").hint
    assert "another release of timm" in reported_error(event, "timm:resnet18", "python").hint
    assert "your model's own" in reported_error(event, "train:build", "python").hint
    assert "your model's own" in reported_error(event, "hf:my/config.json", "python").hint


def test_a_model_type_that_is_none_has_neighbours(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lama"}))
    assert "`llama`" in error_of(f"hf:{tmp_path}").hint


#: Published counts that a release rounds, or that hold what its library leaves out of the model.
NEARLY = {
    "glm-4.5": (358_337_791_296, "with the layer that predicts the token after next"),
    "rt-detr-r50": (42_862_860, "PekingU/rtdetr_r50vd"),
    "d-fine-s": (10.2e6, "github.com/roboflow/rf-detr, README, without what is for training"),
    "d-fine-m": (19.2e6, "github.com/roboflow/rf-detr, README, without what is for training"),
    "d-fine-x": (62e6, "github.com/Peterande/D-FINE, README"),
    "llama-3.2-90b-vision": (88.6e9, "meta-llama/Llama-3.2-90B-Vision, model card"),
    "command-r7b": (8.03e9, "CohereLabs/c4ai-command-r7b-12-2024"),
    "nemotron-4-340b": (341e9, "arXiv:2406.11704, table 1: 331.6 B and 9.4 B of embeddings"),
    "llava-1.5-13b": (13.35e9, "llava-hf/llava-1.5-13b-hf"),
    "esm2-35m": (33.5e6, "facebook/esm2_t12_35M_UR50D"),
    "esm2-150m": (148.1e6, "facebook/esm2_t30_150M_UR50D"),
    "esm2-3b": (2.84e9, "facebook/esm2_t36_3B_UR50D"),
    "esm2-15b": (15.1e9, "facebook/esm2_t48_15B_UR50D"),
    "sam-vit-base": (93_735_472, "facebook/sam-vit-base"),
    "sam-vit-large": (312_342_832, "facebook/sam-vit-large"),
    "siglip2-large-256": (881.5e6, "google/siglip2-large-patch16-256"),
    "rwkv-4-7b": (7_393_009_664, "RWKV/rwkv-4-7b-pile"),
    "rwkv-4-14b": (14_147_261_440, "RWKV/rwkv-4-14b-pile"),
    "opt-66b": (65_718_000_000, "facebook/opt-66b"),
    "mpt-30b": (29_958_000_000, "mosaicml/mpt-30b"),
    "stablelm-2-12b": (12_143_000_000, "stabilityai/stablelm-2-12b"),
    "exaone-4.0-32b": (32_003_200_000, "LGAI-EXAONE/EXAONE-4.0-32B"),
    "dots.llm1": (142_774_381_696, "rednote-hilab/dots.llm1.inst"),
    "apertus-70b": (70.6e9, "swiss-ai/Apertus-70B-2509"),
    "clip-vit-bigg-14": (2_539_567_362, "laion/CLIP-ViT-bigG-14-laion2B-39B-b160k"),
    "dinov3-vith16plus": (840_589_440, "facebook/dinov3-vith16plus-pretrain-lvd1689m"),
    "qwen3-vl-32b": (33.4e9, "Qwen/Qwen3-VL-32B-Instruct"),
    "qwen3-vl-235b-a22b": (235.7e9, "Qwen/Qwen3-VL-235B-A22B-Instruct"),
    "qwen2-57b-a14b": (57.41e9, "Qwen/Qwen2-57B-A14B"),
    "gemma-3n-e4b": (7_849_978_192, "google/gemma-3n-E4B-it"),
    "moonlight-16b-a3b": (15_960_110_208, "moonshotai/Moonlight-16B-A3B"),
    "glm-4-32b": (32_566_091_776, "zai-org/GLM-4-32B-0414"),
    "ministral-3-3b": (
        3.4e9,
        "mistralai/Ministral-3-3B-Base-2512, model card: 3.4 B without vision",
    ),
    "ministral-3-8b": (
        8.4e9,
        "mistralai/Ministral-3-8B-Base-2512, model card: 8.4 B without vision",
    ),
    "ministral-3-14b": (
        13.5e9,
        "mistralai/Ministral-3-14B-Base-2512, model card: 13.5 B without vision",
    ),
    "voxtral-mini-3b": (4.68e9, "mistralai/Voxtral-Mini-3B-2507"),
    "granite-4.0-h-tiny": (6.939e9, "ibm-granite/granite-4.0-h-tiny"),
    "granite-4.0-h-small": (32.2e9, "ibm-granite/granite-4.0-h-small"),
    "minimax-m1": (456.0e9, "MiniMaxAI/MiniMax-M1-80k"),
    "minitron-4b": (4.19e9, "nvidia/Minitron-4B-Base"),
    "mistral-nemo-minitron-8b": (8_414_146_560, "nvidia/Mistral-NeMo-Minitron-8B-Base"),
    "timesfm-2.0-500m": (498_828_960, "google/timesfm-2.0-500m-pytorch"),
    "videomae-base": (86.5e6, "MCG-NJU/videomae-base"),
    "timesformer-base": (121.4e6, "facebook/timesformer-base-finetuned-k400"),
    "vivit-b-16x2": (88.6e6, "google/vivit-b-16x2-kinetics400"),
    "yolos-small": (30.7e6, "hustvl/yolos-small"),
    "ast": (86.6e6, "MIT/ast-finetuned-audioset-10-10-0.4593"),
    "vitmae-base": (111.9e6, "facebook/vit-mae-base"),
    "layoutlmv3-base": (125.3e6, "microsoft/layoutlmv3-base"),
    "wav2vec2-xls-r-1b": (962.5e6, "facebook/wav2vec2-xls-r-1b"),
    "musicgen-small": (419_584_000, "facebook/musicgen-small, less its T5 encoder and codec"),
    "musicgen-medium": (1.84e9, "facebook/musicgen-medium: 2.0 B with its T5 encoder and codec"),
    "musicgen-large": (3.25e9, "facebook/musicgen-large: 3.4 B with its T5 encoder and codec"),
    "parakeet-ctc-0.6b": (0.6e9, "nvidia/parakeet-ctc-0.6b"),
    "parakeet-ctc-1.1b": (1.06e9, "nvidia/parakeet-ctc-1.1b"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n.startswith("sam") else pytest.mark.slow) for n in NEARLY],
)
def test_a_known_name_has_nearly_the_published_parameters(name):
    model = hf_subject(name, {}).model
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(NEARLY[name][0], rel=0.02)


NEARLY_TABLE = (Path(__file__).parent / "data" / "hf_nearly.csv").read_text(encoding="utf-8")
NEARLY_ROWS = list(csv.DictReader(NEARLY_TABLE.splitlines()))
QUICK = (
    "rf-detr-nano",
    "grounding-dino-tiny",
    "owlv2-base-16",
    "vjepa2-vitl",
    "qwen3.5-9b",
    "gemma-4-e2b",
)


def counted(model, part=""):
    """Parameters of a part; ``text`` is all but the encoders of pictures and sound."""
    if part == "text":
        return counted(model.model.language_model) + counted(model.lm_head)
    return sum(p.numel() for p in (model.get_submodule(part) if part else model).parameters())


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["name"], marks=() if row["name"] in QUICK else pytest.mark.slow)
        for row in NEARLY_ROWS
    ],
)
def test_a_newer_name_is_within_a_hundredth_of_what_is_published(row):
    model = hf_subject(row["name"], {}).model
    assert counted(model, row["part"]) == pytest.approx(int(row["parameters"]), rel=0.01)


#: hidden, layers, feed-forward, heads, heads of keys, heads of the recurrence, whether tied: the
#: model cards of Qwen3.5, and THUDM/slime, scripts/models (read 2026-11-22).
QWEN3_5 = {
    "qwen3.5-0.8b": (1024, 24, 3584, 8, 2, 16, True),
    "qwen3.5-2b": (2048, 24, 6144, 8, 2, 16, True),
    "qwen3.5-4b": (2560, 32, 9216, 16, 4, 32, True),
    "qwen3.5-27b": (5120, 64, 17408, 24, 4, 48, False),
}


@pytest.mark.parametrize("name", QWEN3_5)
def test_qwen3_5_has_an_attention_in_four_layers_and_recurrences_in_the_others(name):
    """Heads of 256, gates as wide as queries; 16 heads of keys of 128, and a convolution of 4."""
    hidden, layers, inner, heads, keys, values, is_tied = QWEN3_5[name]
    attention = hidden * 256 * (3 * heads + 2 * keys) + 2 * 256
    mixed = (2 * 16 + values) * 128
    recurrence = hidden * (mixed + 2 * values * 128 + 2 * values) + 4 * mixed + 2 * values + 128
    layer = 3 * hidden * inner + 2 * hidden
    total = layers * layer + layers // 4 * (attention + 3 * recurrence) + hidden
    total += 248320 * hidden * (1 if is_tied else 2)
    model = hf_subject(name, {}).model
    own = counted(model.model.language_model) + (0 if is_tied else counted(model.lm_head))
    assert own == total


def test_what_qwen2_5_omni_thinks_with_is_qwen2_5_vl_and_an_ear():
    model = hf_subject("qwen2.5-omni-7b", {}).model
    assert counted(model) - counted(model.model.audio_tower) == PUBLISHED["qwen2.5-vl-7b"]


def test_what_qwen3_omni_and_qwen3_asr_write_with_is_qwen3():
    """Omni's heads and experts are the 30 B's, with 128 words more; ASR's layers the 1.7 B's."""
    omni = hf_subject("qwen3-omni-30b-a3b", {}).model
    text = counted(omni.model.language_model) + counted(omni.lm_head)
    assert text == PUBLISHED["qwen3-30b-a3b"] + 2 * 128 * 2048
    asr = hf_subject("qwen3-asr-1.7b", {}).model
    assert counted(asr.model.language_model) == PUBLISHED["qwen3-1.7b"]


def test_kimi_k2_5_is_kimi_k2_and_an_eye():
    listed = {one.entry: one.parameters for one in known_models()}
    model = hf_subject("kimi-k2.5", {}).model
    text = counted(model.model.language_model) + counted(model.lm_head)
    assert text == listed["hf:kimi-k2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trillions"), [("deepseek-v4-pro", "1.6"), ("mistral-large-4", "1")]
)
def test_a_model_of_trillions_has_what_its_release_says_as_far_as_it_says_it(name, trillions):
    """docs.venice.ai (1.6 T) and docs.nvidia.com/nemo/automodel (1 T), read 2026-11-22."""
    digits = len(trillions.partition(".")[2])
    assert f"{counted(hf_subject(name, {}).model) / 1e12:.{digits}f}" == trillions


def test_prot_t5_is_t5_3b_with_a_word_for_each_residue():
    words = (32128 - 128) * 1024
    assert counted(hf_subject("prot-t5-xl", {}).model) == PUBLISHED["t5-3b"] - words


def test_phi_4_multimodal_is_phi_4_mini_with_an_eye_an_ear_and_adapters():
    """Adapters of rank 320 and 256 on every product of every layer (5,574,460,384 in all)."""
    model = hf_subject("phi-4-multimodal", {}).model
    text = counted(model) - counted(model.model.embed_tokens_extend)
    assert text == PUBLISHED["phi-4-mini"]
    layer = model.model.layers[0]
    products = (layer.self_attn.qkv_proj, layer.self_attn.o_proj,
                layer.mlp.gate_up_proj, layer.mlp.down_proj)  # fmt: skip
    width = sum(sum(product.weight.shape) for product in products)
    adapted = counted(model) + 32 * (320 + 256) * width
    assert adapted == pytest.approx(5_574_460_384, rel=1e-3)


def test_jina_embeddings_v3_is_xlm_r_with_rotations_for_positions():
    """arXiv:2409.10173: 559 M without adapters."""
    plain = counted(hf_subject("xlm-roberta-large", {}).model)
    assert counted(hf_subject("jina-embeddings-v3", {}).model) == plain - 514 * 1024


def test_canary_v2_is_its_release_with_the_output_layer_apart():
    """huggingface.co/nvidia/canary-1b-v2: 978 M (recalled 2026-11-22)."""
    model = hf_subject("canary-1b-v2", {}).model
    assert counted(model) + 16384 * 1025 == pytest.approx(978e6, rel=2e-3)


@pytest.mark.parametrize(("name", "clip"), [("owlvit-base-32", "clip-vit-b-32"),
                                            ("owlvit-base-16", "clip-vit-b-16"),
                                            ("owlvit-large-14", "clip-vit-l-14")])  # fmt: skip
def test_owl_vit_is_clip_with_heads_for_boxes(name, clip):
    """All but positions, which follow the size of the picture and the length of the text."""
    owl = hf_subject(name, {}).model.owlvit
    places = sum(
        counted(one) for path, one in owl.named_modules() if path.endswith("position_embedding")
    )
    other = hf_subject(clip, {}).model
    others = sum(
        counted(one) for path, one in other.named_modules() if path.endswith("position_embedding")
    )
    assert counted(owl) - places == counted(other) - others


@pytest.mark.parametrize("size", ["tiny", "small", "base_plus", "large"])
def test_an_encoder_of_sam_2_has_the_parameters_of_timms(size):
    """All but the norm that timm ends it with."""
    listed = {one.entry: one.parameters for one in known_models()}
    model = hf_subject(f"sam2-hiera-{size.replace('_', '-')}", {}).model
    encoder = sum(p.numel() for p in model.vision_encoder.backbone.parameters())
    whole = listed[f"timm:sam2_hiera_{size}"]
    assert encoder == pytest.approx(whole, rel=1e-4)


@pytest.mark.slow
def test_qwen3_next_has_its_release_less_the_layer_that_predicts_the_token_after_next():
    """That layer has attention and experts as the fourth, and joins two states into one."""
    model = hf_subject("qwen3-next-80b-a3b", {}).model
    layer = sum(p.numel() for p in model.model.layers[3].parameters())
    total = sum(p.numel() for p in model.parameters()) + layer + 2 * 2048**2 + 3 * 2048
    assert total == 81_324_862_720


def test_a_known_name_takes_other_sizes():
    """A layer less is what one layer of the release has less."""
    whole, less = (
        sum(p.numel() for p in hf_subject(name, {}).model.parameters())
        for name in ("qwen3-0.6b", "qwen3-0.6b,num_hidden_layers=27")
    )
    hidden, ffn, query, keys = 1024, 3072, 2048, 1024
    layer = hidden * (2 * query + 2 * keys) + 3 * hidden * ffn + 2 * hidden + 2 * 128
    assert whole - less == layer


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("num_layers_hidden=2", "num_hidden_layers"),
        ("num_hidden_layers", "is no size of this model"),
    ],
)
def test_a_size_that_a_model_has_not_is_refused_with_those_it_has(stated, said):
    assert said in str(error_of(f"hf:qwen3-0.6b,{stated}"))


@pytest.mark.parametrize(
    ("model_type", "is_decoder", "name"),
    [("bert", False, "BertForMaskedLM"), ("bert", True, "BertLMHeadModel"),
     ("electra", False, "ElectraForMaskedLM"), ("llama", False, "LlamaForCausalLM"),
     ("t5", False, "T5ForConditionalGeneration")],
)  # fmt: skip
def test_an_encoder_writes_only_where_its_config_says_so(model_type, is_decoder, name):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, is_decoder=is_decoder)
    assert families._class_name(model_type, config) == name
