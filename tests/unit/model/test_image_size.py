"""The side of pictures and the length of texts: honoured by the kinds that can, else refused."""

import json

import numpy as np
import pytest
from tests.sampled import sampled
from torch import nn
from traced import trace_here, worker

from paceline.errors import PacelineError
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.graph.workload import Workload
from paceline.model.names.shipped_graphs import is_built_here
from paceline.model.reading.load import load_workload
from paceline.model.reading.worker import reported_error

#: A model of each kind, its own side, and what its convolutions grow by with twice the side.
SQUARES = [
    ("published:ssd300", 300, 4), ("published:mask_rcnn", 512, 4),
    ("published:unet_medical", 1852, 4), ("published_images:efficientdet_d0", 512, 4),
    ("published_images:ssd_resnet34", 300, 4), ("published_images:retinanet_mlperf", 256, 4),
    ("published_images:unet_industrial", 256, 4), ("published_diffusion:sd2_unet", 256, 4),
    ("published_diffusion:sana_1600m", 512, 4), ("published_gpunet:gpunet_0", 320, 4),
    ("published_volumes:vnet", 32, 8), ("published_volumes:unet3d", 64, 8),
    ("published_yolo:yolo11n", 320, 4), ("torchvision:fcos_resnet50_fpn", 256, 4),
    ("torchvision:r3d_18", 112, 4), ("timm:resnet18", 224, 4), ("hf:segformer-b1", 256, 4),
    ("detectron2:faster_rcnn_R_50_FPN", 512, 4), ("unet", 256, 4), ("retinanet", 256, 4),
    ("sd15-unet", 256, 4),
]  # fmt: skip
#: Transformers of pictures: products grow with the patches, and attention faster.
PATCHED = [
    "published_images:pixart_sigma", "published_images:sd3_medium", "published_images:flux1",
    "published_images:flux2_klein_4b", "published_images:z_image", "hf:vit",
    "timm:vit_tiny_patch16_224", "torchvision:vit_b_16",
]  # fmt: skip
WITHOUT_A_SIDE = [
    ("published:ncf", "no pictures"), ("published:waveglow", "8,000 samples of sound"),
    ("published:bert_squad_base", "no pictures"), ("published_speech:fastpitch", "128 characters"),
    ("published_speech:jasper", "15 s of sound"), ("published_tables:dlrm_small", "no pictures"),
    ("published_tables:tft_electricity", "168 hours"),
    ("published_images:wan21_1b", "81 frames of 480×832"),
    ("published_volumes:unet3d_brats_whole", "224×224×160 voxels"),
    ("published_frames:deepspeech2", "12.3 s of sound"),
    ("published_sequences:gnmt", "no pictures"), ("published_recurrent:rwkv7_0b1", "no pictures"),
    ("hf:bert-base", "no pictures"), ("hf:whisper-small", "30 s of sound"),
    ("cifar10-cnn", "32×32"), ("transformer:layers=1,hidden=32,heads=2", "no pictures"),
]  # fmt: skip


def at_side(entry: str, side: int) -> Workload:
    """Inference at a side: of the shipped graph where no worker builds the model."""
    if is_built_here(entry):
        return trace_here(entry, task="infer", image_size=side)
    return load_workload(entry, task="infer", image_size=side)


def flop(workload: Workload, kind: OpKind | None = None) -> float:
    ops = workload.passes[0].graph.ops
    rows = slice(None) if kind is None else ops.kind == kind
    return float((monomials([8.0]) @ ops.flop[rows].T).sum())


def flop_of_pictures(workload: Workload) -> float:
    """Of convolutions but those of masks, which see as many regions of any picture."""
    graph = workload.passes[0].graph
    is_of_regions = np.array([name.startswith("mask") for name in graph.modules])
    rows = (graph.ops.kind == OpKind.CONV) & ~is_of_regions[graph.ops.module]
    return float((monomials([8.0]) @ graph.ops.flop[rows].T).sum())


def refusal(entry: str, **sizes: int) -> PacelineError:
    """As the worker's closing event tells it; of what is shipped as a graph, as loading says it."""
    if not is_built_here(entry):
        with pytest.raises(PacelineError) as of_graph:
            load_workload(entry, task="infer", **sizes)
        return of_graph.value
    with pytest.raises(worker("torch_entries.subjects").RequestError) as refused:
        trace_here(entry, task="infer", **sizes)
    event = {"kind": refused.value.kind, "message": str(refused.value)}
    return reported_error(event, entry, "python")


def test_a_larger_image_costs_more_by_its_area() -> None:
    usual, larger = (load_workload("resnet50", task="infer", image_size=s) for s in (None, 448))
    assert np.isclose(flop(larger) / flop(usual), 4.0, rtol=0.01)
    assert larger.input_description == "448×448"
    assert larger.num_parameters == usual.num_parameters


@pytest.mark.parametrize(
    ("entry", "side", "growth"),
    sampled(
        SQUARES, "published:unet_medical", "published_images:efficientdet_d0",
        "published_diffusion:sd2_unet", "published_gpunet:gpunet_0", "published_volumes:vnet",
        "published_yolo:yolo11n", "torchvision:r3d_18", "timm:resnet18", "unet",
    ),
)  # fmt: skip
def test_convolutions_grow_with_the_area_or_the_volume(entry: str, side: int, growth: int) -> None:
    twice = 2 * side + 4 if entry == "published:unet_medical" else 2 * side
    small, large = (at_side(entry, s) for s in (side, twice))
    # Unpadded borders and odd sides keep it from being exact.
    assert flop_of_pictures(large) / flop_of_pictures(small) == pytest.approx(growth, rel=0.2)
    assert str(twice) in large.input_description
    assert large.num_parameters == small.num_parameters


@pytest.mark.parametrize(
    "entry",
    sampled(PATCHED, "published_images:pixart_sigma", "hf:vit", "timm:vit_tiny_patch16_224"),
)
def test_patches_grow_with_the_area(entry: str) -> None:
    small, large = (at_side(entry, s) for s in (512, 1024))
    assert 3.0 < flop(large) / flop(small) < 16.0
    assert "1024×1024" in large.input_description


@pytest.mark.parametrize(("entry", "takes"), WITHOUT_A_SIDE)
def test_a_side_without_effect_is_refused(entry: str, takes: str) -> None:
    error = refusal(entry, image_size=64)
    assert takes in str(error)
    assert "leave --image-size out" in error.hint


def test_a_text_is_pointed_to_its_length() -> None:
    assert "--seq" in refusal("hf:bert-base", image_size=64).hint


@pytest.mark.parametrize(
    ("entry", "side", "given"),
    [
        ("published:unet_medical", 600, "588 or 604"),
        ("published:unet_medical", 100, "188 or 204"),
        ("published_yolo:yolo11n", 650, "640 or 672"),
        ("published_volumes:vnet", 4, "8 or 16"),
        ("published_images:pixart_sigma", 1000, "992 or 1008"),
    ],
)
def test_a_side_between_those_that_can_be_is_told_its_neighbours(
    entry: str, side: int, given: str
) -> None:
    assert refusal(entry, image_size=side).hint == f"give --image-size {given}"


@pytest.mark.parametrize(
    ("entry", "side", "own"),
    sampled(
        [
            ("mnist-cnn", 56, "28×28"),
            ("published:alexnet_lrn", 448, "224×224"),
            ("hf:videomae-base", 112, "16 frames of 224×224"),
        ],
        "mnist-cnn",
        "published:alexnet_lrn",
    ),
)
def test_a_side_that_the_layers_do_not_take_is_refused(entry: str, side: int, own: str) -> None:
    assert own in refusal(entry, image_size=side).hint


@pytest.mark.parametrize(
    ("entry", "side"),
    sampled(
        [("published_diffusion:sd2", 768), ("published_images:pixart_sigma", 1024)],
        "published_images:pixart_sigma",
    ),
)
def test_the_side_of_the_release_changes_nothing(entry: str, side: int) -> None:
    usual, same = (trace_here(entry, task="infer", image_size=s) for s in (None, side))
    assert flop(usual) == flop(same)
    assert usual.input_description == same.input_description == f"pictures of {side}×{side}"


class _Own(nn.Module):
    """A model that makes its own pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images):
        return self.conv(images)


class _WithInputs(_Own):
    def inputs(self, batch):
        import torch

        return torch.zeros(batch, 3, 40, 40)


def test_pictures_of_the_users_own_code_have_the_side_that_it_makes() -> None:
    with pytest.raises(PacelineError, match="its own code makes its inputs") as refused:
        load_workload(_WithInputs(), task="infer", image_size=64)
    assert "leave --image-size out" in refused.value.hint
    assert flop(load_workload(_WithInputs(), task="infer", image_size=40)) > 0
    small, large = (load_workload(_Own(), task="infer", image_size=s) for s in (66, 130))
    assert flop(large, OpKind.CONV) == 4 * flop(small, OpKind.CONV)


def test_a_file_has_the_pictures_that_were_traced(tmp_path) -> None:
    from paceline.model.graph.store import save_workload

    path = tmp_path / "traced.npz"
    save_workload(trace_here("timm:resnet18", image_size=64), path)
    assert load_workload(str(path), image_size=64).input_description == "64×64"
    with pytest.raises(PacelineError, match="traced on 64×64"):
        load_workload(str(path), image_size=128)
    assert load_workload(str(path), optimizer="sgd").optimizer == "sgd"


def test_a_length_beyond_a_table_of_positions_is_refused() -> None:
    assert refusal("hf:bert-base", seq=700).hint == "give --seq 512 or less"
    assert refusal("hf:whisper-small", seq=700).hint == "give --seq 448 or less"


def test_what_has_no_length_is_told_none() -> None:
    sound = trace_here("hf:wav2vec2-base", task="infer")
    assert (sound.default_seq, sound.input_description) == (1, "1 s of sound (16000 numbers)")


def test_the_text_beside_a_sound_is_told_as_a_text() -> None:
    both = trace_here("hf:whisper-tiny", task="infer")
    assert both.input_description == "30 s of sound (3000 frames of 80)"
    assert both.length_name == "length of the text"
    assert trace_here("hf:bert-base", task="infer").length_name == "sequence length"


def test_a_model_without_images_says_so() -> None:
    with pytest.raises(PacelineError, match="takes no images"):
        load_workload("gpt2", image_size=112)


def test_a_refusal_is_read_from_its_event() -> None:
    message = json.dumps({"said": "it takes no pictures", "hint": "leave --image-size out"})
    error = reported_error({"kind": "size", "message": message}, "published:ncf", "python")
    assert (str(error), error.hint) == (
        "`published:ncf`: it takes no pictures",
        "leave --image-size out",
    )
