"""Models that published measurements name: parameters and arithmetic of their papers.

GPUNet: Wang et al. 2022 (11.9, 12.7, 25.8 and 10.6 million parameters). Denoisers: the weights of
the U-Net or transformer.
"""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
WORKERS = Path(__file__).parents[3] / "src" / "paceline" / "trace" / "workers"
sys.path.insert(0, str(WORKERS))

import published_diffusion  # noqa: E402
import published_gpunet  # noqa: E402
import published_images  # noqa: E402


def built(module, name):
    with torch.device("meta"):
        return module._MODELS[name]()


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "millions"),
    [("gpunet_0", 11.9), ("gpunet_1", 12.7), ("gpunet_2", 25.8), ("gpunet_d1", 10.6)],
)
def test_a_network_of_gpunet_has_the_parameters_of_its_paper(name, millions):
    assert num_parameters(built(published_gpunet, name)) == pytest.approx(millions * 1e6, rel=0.005)


@pytest.mark.parametrize("name", sorted(published_gpunet._MODELS))
def test_a_network_of_gpunet_shrinks_its_images_and_tells_a_thousand_classes(name):
    model = built(published_gpunet, name)
    images = torch.empty(2, 3, model.image_size, model.image_size, device="meta")
    assert model(images).shape == (2, 1000)
    strides = 64 if "_p" in name else 32
    assert model.features(images).shape[-1] == -(-model.image_size // strides)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sd2", 865_910_724), ("sdxl", 2_567_463_684), ("sana_1600m", 1_604_462_752)],
)
def test_a_denoiser_has_the_parameters_of_its_release(name, parameters):
    assert num_parameters(built(published_diffusion, name)) == parameters


@pytest.mark.parametrize("name", sorted(published_diffusion._MODELS))
def test_a_denoiser_answers_in_the_shape_of_its_latents(name):
    model = built(published_diffusion, name)
    with torch.device("meta"):
        latents, *more = model.inputs(2)
        assert model(latents, *more).numel() == latents.numel()


def test_linear_attention_asks_twice_as_much_of_twice_the_patches():
    from torch.utils.flop_counter import FlopCounterMode

    layer = published_diffusion._LinearAttention(64, norm=False).to("meta")
    flop = []
    for tokens in (256, 512):
        with FlopCounterMode(display=False) as counter:
            layer(torch.empty(1, tokens, 64, device="meta"))
        flop.append(counter.get_total_flops())
    assert flop[1] == 2 * flop[0]


#: Of the releases' transformers, with embeddings of time and positions, which are not counted here.
TRANSFORMERS = {
    "flux1": 11_901_408_320, "sd3_medium": 2_028_328_000, "sd35_medium": 2_243_171_520,
    "sd35_large": 8_056_627_520, "cogvideox_2b": 1_693_000_000, "cogvideox_5b": 5_570_000_000,
    "wan21_1b": 1_418_996_800, "wan21_14b": 14_288_491_584, "qwen_image": 20_430_401_088,
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_of_diffusion_has_nearly_the_parameters_of_its_release(name):
    published = pytest.approx(TRANSFORMERS[name], rel=0.02)
    assert num_parameters(built(published_images, name)) == published


@pytest.mark.parametrize(
    ("name", "width", "published"),
    [("wan22_5b", 3072, 4_999_787_712), ("ltx_2b", 2048, 1_923_385_472), ("ltx_13b", 4096, 13e9)],
)
def test_a_film_has_the_weights_of_its_release_less_its_embeddings(name, width, published):
    """Of time, through two layers and into six scales, and of the text, through two."""
    time = 256 * width + width**2 + 6 * width**2
    text = 4096 * width + width**2
    total = num_parameters(built(published_images, name)) + time + text
    assert total == pytest.approx(published, rel=0.01)


def test_a_film_of_hunyuan_has_its_release_less_two_layers_that_refine_the_text():
    """12,821,012,544 with them: attention, feed-forward and two of six scales, and projections."""
    refiner = 2 * (12 + 2) * 3072**2 + 4096 * 3072 + 4 * 3072**2
    total = num_parameters(built(published_images, "hunyuan_video")) + refiner
    assert total == pytest.approx(12_821_012_544, rel=0.02)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("flux2_dev", 32), ("flux2_klein_4b", 4), ("flux2_klein_9b", 9), ("z_image", 6)],
)
def test_a_gated_transformer_of_diffusion_has_the_billions_of_its_release(name, billions):
    """As its release says, in whole ones: black-forest-labs/FLUX.2, Tongyi-MAI/Z-Image."""
    assert round(num_parameters(built(published_images, name)) / 1e9) == billions


@pytest.mark.parametrize(
    "name", ["flux1", "sd35_medium", "cogvideox_2b", "flux2_klein_4b", "z_image"]
)
def test_text_goes_through_a_transformer_with_the_picture(name):
    """Twice the products of as many parameters as tokens meet, and the attention of both."""
    model = built(published_images, name)
    with torch.device("meta"):
        patches, prompt, vector = model.inputs(1)
        assert model(patches, prompt, vector).shape == patches.shape


def test_flux_asks_of_a_picture_what_its_weights_and_its_attention_do():
    from torch.utils.flop_counter import FlopCounterMode

    model = built(published_images, "flux1")
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model(*model.inputs(1))
    double, single, width, tokens, words = 19, 38, 3072, 4096, 512
    products = 2 * (tokens + words) * 12 * width**2 * (double + single)
    attention = 4 * (tokens + words) ** 2 * width * (double + single)
    assert counter.get_total_flops() == pytest.approx(products + attention, rel=0.002)


@pytest.mark.parametrize("name", ["published_images:flux1", "published_diffusion:sana_1600m"])
def test_a_denoiser_says_that_its_sample_is_one_step(name):
    from torch_subjects import build_subject

    subject = build_subject({"entry": name, "task": "infer"})
    assert subject.taken.startswith("a sample is one denoising step")
