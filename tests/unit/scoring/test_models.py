"""What names of published models mean: entries, units, refusals."""

import csv
import io
from importlib import resources

import pytest

from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.naming.serving import requests_of
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row

ROW = {
    "task": "train", "framework": "PyTorch", "precision": "bf16", "gpu": "A100",
    "batch_per_gpu": "8",
}  # fmt: skip


def model(name, **given):
    return resolve_model(parse_row(ROW | {"model": name} | given))


@pytest.mark.parametrize(
    ("name", "layers", "hidden"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 28, 3584),
        ("meta-llama/Llama-3.2-1B", 16, 2048),
        ("mistralai/Mistral-Large-Instruct-2411", 88, 12288),
        ("google/gemma-2-9b-it", 42, 3584),
        ("EleutherAI/pythia-6.9b", 32, 4096),
        ("Qwen3 14B", 40, 5120),
    ],
)
def test_a_language_model_is_known_by_its_hub_name(name, layers, hidden):
    entry = model(name).entry
    assert f"layers={layers}," in entry
    assert f"hidden={hidden}," in entry


def test_other_trainings_and_formats_have_the_sizes_of_their_base():
    base = model("Qwen/Qwen2.5-7B").entry
    for name in ("Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b-instruct-fp8", "Qwen/Qwen2.5-7B-Instruct"):
        assert model(name).entry == base


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("timm/vit_base_patch16_224.augreg_in21k", "timm:vit_base_patch16_224"),
        ("EfficientNetV2-S", "timm:efficientnetv2_s"),
        ("resnet_v2_50x1_bit.goog_in21k", "timm:resnet_v2_50x1_bit"),
        ("ResNet-50", "resnet50"),
    ],
)
def test_image_models_are_known_by_their_library_name(name, entry):
    assert model(name).entry == entry


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("RN50", "resnet50"),
        ("torchvision.models.vgg16", "vgg16"),
        ("ResNet-50 v2", "timm:resnetv2_50"),
        ("Wide ResNet 50", "timm:wide_resnet50_2"),
        ("MobileNet", "timm:mobilenetv1_100"),
        ("DeiT-S", "timm:deit_small_patch16_224"),
        ("ViT-L/14", "timm:vit_large_patch14_224"),
    ],
)
def test_short_names_and_module_paths_mean_what_their_authors_mean(name, entry):
    assert model(name).entry == entry


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("torch 2.1", "torch"),
        ("torch==1.13.1", "torch"),
        ("TF 2.4", "tensorflow"),
        ("tf", "tensorflow"),
        ("Torch-7 (native)", "legacy"),
        ("CL-nn (Torch)", "legacy"),
    ],
)
def test_frameworks_are_known_by_their_short_names(name, framework):
    row = parse_row(ROW | {"model": "resnet50", "framework": name})
    assert read_job(row).framework == framework


@pytest.mark.parametrize("stated", ["FP16 (AMP)", "O1", "fp16/fp32", "FP16 + FP32 master"])
def test_mixed_precision_is_known_by_what_its_tables_call_it(stated):
    row = parse_row(ROW | {"model": "resnet50", "precision": stated})
    assert read_job(row).configuration.precision == "fp16"


def test_one_name_may_mean_two_models():
    short = model("Transformer-XL", task="infer", seq_len="64")
    long = model("Transformer-XL", task="infer", seq_len="128")
    assert short.entry.endswith("base_640")
    assert long.entry.endswith("large_1600")
    with pytest.raises(UnresolvedRowError, match="no single model: there are two sizes"):
        model("Transformer-XL", task="infer")


def test_a_refusal_says_what_is_missing():
    with pytest.raises(UnresolvedRowError, match="how many hypotheses"):
        model("GNMT", task="infer")
    with pytest.raises(UnresolvedRowError, match="does not say which"):
        model("GPUNet", task="infer")


def test_a_name_that_nobody_knows_is_refused_and_never_guessed():
    for name in ("acme/Wonder-9000-Ultra", "my secret network", ""):
        with pytest.raises(UnresolvedRowError):
            model(name)


def test_a_length_that_is_a_beam_is_no_length():
    job = read_job(
        parse_row(
            ROW | {"model": "GNMT", "task": "infer", "framework": "TensorFlow", "seq_len": "2"}
        )
    )
    assert job.entry.endswith("beam2")
    assert job.seq == 30


def test_served_requests_set_the_context():
    row = parse_row(ROW | {"model": "m", "compiler_flags": "isl=1024, osl=256"})
    requests = requests_of(row)
    assert requests is not None
    assert requests.mean_context == 1024 + 128
    assert requests_of(parse_row(ROW | {"model": "m", "compiler_flags": "nhwc; eager"})) is None


def test_every_line_of_the_table_of_names_is_complete():
    path = resources.files("paceline.model") / "data" / "published_names.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert len(rows) > 100
    for row in rows:
        assert row["pattern"]
        assert row["entry"]
        assert None not in row, row["pattern"]


def test_an_image_of_twenty_steps_takes_twenty_passes():
    job = read_job(
        parse_row(
            ROW
            | {
                "model": "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
                "task": "infer",
                "framework": "xDiT/diffusers",
            }
        )
    )
    assert job.num_passes == 20


def test_a_cut_of_an_utterance_has_a_rate_and_no_memory():
    row = {
        "model": "Tacotron2", "task": "train", "gpu": "A100", "precision": "fp16",
        "batch_per_gpu": "48", "unit": "mels/s", "framework": "PyTorch NGC 20.10",
    }  # fmt: skip
    job = read_job(parse_row(row))
    assert job.is_cut
    assert (job.units_per_item, job.num_passes) == (566, 8.7)
    spoken = read_job(parse_row(row | {"unit": "audio samples/s"}))
    assert (spoken.entry, spoken.is_cut) == ("published:waveglow", False)


def test_convolutions_written_by_hand_are_told_by_the_flags():
    def convolutions(flags):
        row = parse_row(ROW | {"model": "resnet50", "compiler_flags": flags})
        return read_job(row).configuration.convolutions

    assert convolutions("channels_last; compiled") == "library"
    assert convolutions("channels_last; compiled; tuned convolutions") == "tuned"
