"""Models of transformers of other kinds than text and pictures: clips, sounds, series, masks."""

import pytest
from tests.sampled import sampled
from traced import trace_here, worker

from paceline.model.graph.graph import OpKind, Phase, monomials


def flop_of(graph, kind, batch, seq, phase=Phase.FORWARD):
    rows = (graph.ops.kind == kind) & (graph.ops.phase == phase)
    return float((graph.ops.flop[rows] @ monomials(batch, seq).T).sum())


@pytest.mark.parametrize(
    ("name", "shape"),
    sampled([
        ("videomae-base", (16, 3, 224, 224)), ("timesformer-base", (8, 3, 224, 224)),
        ("vivit-b-16x2", (32, 3, 224, 224)), ("ast", (1024, 128)), ("wavlm-base", (16000,)),
        ("timesfm-2.0-500m", (512,)), ("parakeet-ctc-0.6b", (1000, 80)),
        ("sam2-hiera-tiny", (3, 1024, 1024)),
    ], "timesformer-base", "vivit-b-16x2", "ast", "wavlm-base", "timesfm-2.0-500m",
        "parakeet-ctc-0.6b", "sam2-hiera-tiny"),
)  # fmt: skip
def test_an_item_has_the_shape_of_its_kind(name, shape):
    subject = worker("torch_transformers.families").hf_subject(name, {})
    assert tuple(subject.shape) == shape


@pytest.mark.parametrize(
    "name", sampled(["wavlm-base", "ast", "parakeet-ctc-0.6b", "timesfm-2.0-500m"], "ast")
)
def test_sounds_and_series_are_trained(name):
    """No span is masked and no layer is skipped by chance: every step has the same operations.

    The backward pass has twice the products, less the input gradients of first layers and of
    positions, which nothing is learned from.
    """
    graph = trace_here(f"hf:{name}").passes[0].graph
    backward = flop_of(graph, OpKind.MATMUL, 4, 1, Phase.BACKWARD)
    assert 1.9 <= backward / flop_of(graph, OpKind.MATMUL, 4, 1) <= 2.0


@pytest.mark.slow
def test_a_clip_is_labelled_as_a_whole():
    """ViT-B on 8 × 14 × 14 patches of 16 × 3 × 2 × 16 numbers, at 2 FLOP a weight and patch."""
    workload = trace_here("hf:videomae-base", task="infer")
    (one,) = workload.passes
    assert (workload.sample_unit, workload.input_description) == ("clips", "16 frames of 224×224")
    weights = 12 * 12 * 768**2
    assert flop_of(one.graph, OpKind.MATMUL, 1, 1) == pytest.approx(2 * weights * 1568, rel=0.01)


@pytest.mark.slow
def test_picture_encoders_of_masks_take_a_thousand_pixels():
    (one,) = trace_here("hf:sam2-hiera-tiny", task="infer").passes
    assert flop_of(one.graph, OpKind.MATMUL, 1, 1) > 50e9


@pytest.mark.parametrize("name", sampled(["mamba-130m", "rwkv-4-169m"], "rwkv-4-169m"))
def test_recurrences_with_kernels_are_known_at_all_lengths(name):
    """A product of two FLOP per weight of a layer and token, whatever the length."""
    workload = trace_here(f"hf:{name}")
    assert not workload.has_fixed_length
    graph = workload.passes[0].graph
    short, long = (flop_of(graph, OpKind.MATMUL, 2, seq) for seq in (128, 4096))
    assert long == pytest.approx(32 * short, rel=1e-6)
    # d = 768. Mamba: d × 4d in, 2d × 80, 48 × 2d, 2d × d out; RWKV: 4 d² of time, 9 d² more.
    layer = {"mamba-130m": 1536 * (2 * 768 + 80 + 48 + 768), "rwkv-4-169m": 13 * 768**2}[name]
    layers, words = {"mamba-130m": (24, 50280), "rwkv-4-169m": (12, 50277)}[name]
    assert short == pytest.approx(2 * 2 * 128 * (layers * layer + 768 * words), rel=0.01)


def test_a_sound_is_told_by_its_frames_and_has_no_length():
    workload = trace_here("hf:parakeet-ctc-0.6b", task="infer")
    assert workload.default_seq == 1
    assert workload.input_description == "10 s of sound (1000 frames of 80)"
    assert workload.sample_unit == "recordings"


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("grounding-dino-tiny", (2, 256)),
        ("owlvit-base-32", (160, 16)),
        ("owlv2-base-16", (160, 16)),
    ],
)
def test_a_detector_that_is_asked_takes_pictures_and_their_texts(name, texts):
    """One text of all names, or a text of each of the 80 classes of COCO."""
    subject = worker("torch_transformers.families").hf_subject(name, {})
    given = subject.inputs(2, 1)
    assert tuple(given["input_ids"].shape) == texts
    assert tuple(given["pixel_values"].shape) == (2, *subject.shape)


@pytest.mark.parametrize(
    ("name", "side"),
    sampled([("segformer-b0", 512), ("depth-anything-v2-small", 518)], "depth-anything-v2-small"),
)
def test_networks_that_answer_every_pixel_are_trained_on_pictures(name, side):
    workload = trace_here(f"hf:{name}")
    assert (workload.sample_unit, workload.input_description) == ("images", f"{side}×{side}")
    graph = workload.passes[0].graph
    backward = flop_of(graph, OpKind.MATMUL, 4, 1, Phase.BACKWARD)
    assert 1.9 <= backward / flop_of(graph, OpKind.MATMUL, 4, 1) <= 2.05


@pytest.mark.slow
def test_a_transducer_meets_every_frame_with_every_token_in_training():
    """125 frames after eight are one, 40 tokens, and scores of 8,193 words and 5 durations."""
    (step,) = trace_here("hf:parakeet-tdt-0.6b").passes
    (forward,) = trace_here("hf:parakeet-tdt-0.6b", task="infer").passes
    frames, tokens, width = 125, 40, 640
    more = 2 * frames * (tokens - 1) * width * (8193 + 5)
    asked = flop_of(step.graph, OpKind.MATMUL, 1, 1) - flop_of(forward.graph, OpKind.MATMUL, 1, 1)
    assert asked == pytest.approx(more, rel=0.01)


@pytest.mark.slow
def test_a_part_of_bark_writes_token_after_token():
    workload = trace_here("hf:bark-coarse", task="infer")
    assert [one.name for one in workload.passes] == ["prefill", "decode"]


class Described:
    """A config whose encoder has these sizes."""

    def __init__(self, **sizes):
        self.vision_config = type("Vision", (), sizes)() if sizes else None


@pytest.mark.parametrize(
    ("sizes", "pixels"),
    [({"patch_size": 14, "spatial_merge_size": 2}, 28), ({"patch_size": (14, 14)}, 0),
     ({"patch_size": (7, 3, 3, 3), "spatial_merge_size": None}, 0), ({"patch_size": 14}, 0),
     ({}, 0)],
)  # fmt: skip
def test_pixels_are_a_token_where_an_encoder_merges_square_patches(sizes, pixels):
    found, said = worker("torch_transformers.pictures").text_alone(Described(**sizes))
    assert found == pixels
    assert ("28×28 pixels" in said) == bool(pixels)


def test_a_codec_of_sound_is_run_on_a_second_and_trained_by_nobody_here():
    """EnCodec halves 24,000 numbers a second by 2, 4, 5 and 8: 75 frames (arXiv:2210.13438)."""
    workload = trace_here("hf:encodec-24khz", task="infer")
    assert workload.input_description == "1 s of sound (24000 numbers)"
    (one,) = workload.passes
    assert flop_of(one.graph, OpKind.CONV, 1, 1) > 1e9
    with pytest.raises(worker("torch_entries.request_errors").RequestError, match="discriminators"):
        trace_here("hf:encodec-24khz")


def test_texts_are_compared_with_sounds():
    """CLAP: RoBERTa on 512 tokens, and a Swin of 27.5 M on 64 × 64 patches of a sound.

    Swin-T has 4.5 GFLOP of products on 56 × 56 patches (arXiv:2103.14030, table 1), in MAC, and
    the sounds of CLAP are pictures of 256 × 256.
    """
    workload = trace_here("hf:clap-htsat", task="infer")
    assert workload.sample_unit == "sequences"
    (one,) = workload.passes
    text = 12 * (2 * 512 * 12 * 768**2 + 4 * 512**2 * 768)
    sound = 2 * 4.5e9 * (64 / 56) ** 2
    products = sum(flop_of(one.graph, kind, 1, 512) for kind in (OpKind.MATMUL, OpKind.ATTENTION))
    assert products == pytest.approx(text + sound, rel=0.01)


def test_a_reader_of_pages_looks_at_them():
    """LayoutLMv3, base: 512 words and 14 × 14 patches with a mark, in 12 layers of 768."""
    workload = trace_here("hf:layoutlmv3-base", task="infer")
    (one,) = workload.passes
    tokens = 512 + 14**2 + 1
    layers = 12 * (2 * tokens * 12 * 768**2 + 4 * tokens**2 * 768)
    products = sum(flop_of(one.graph, kind, 1, 512) for kind in (OpKind.MATMUL, OpKind.ATTENTION))
    assert products == pytest.approx(layers, rel=0.005)


def test_a_classifier_of_texts_learns_a_class_of_each():
    """MobileBERT was given a class of every token, and refused them."""
    small = "hf:mobilebert,num_hidden_layers=2"
    (step,), (forward,) = trace_here(small).passes, trace_here(small, task="infer").passes
    learnt, read = (flop_of(one.graph, OpKind.MATMUL, 2, 64) for one in (step, forward))
    assert learnt == pytest.approx(read, rel=1e-6)
