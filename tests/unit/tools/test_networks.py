"""Networks that ship as graphs: the graphs are theirs, with the parameters of their papers.

WaveGlow with 256 channels: 87.7 million in its release. DLRM: tables and perceptrons counted by
hand. Denoisers: the weights of the U-Net or transformer.
"""

import pytest
from tests.sampled import sampled
from tests.unit.model.traced import trace_here

from paceline.model.graph.graph import monomials
from paceline.model.graph.store import read_workload
from paceline.model.names.registry import known_models, names_of
from paceline.model.names.shipped_graphs import is_built_here
from paceline.model.names.zoo_facts import zoo_facts
from paceline.model.reading.load import is_traced, load_workload

torch = pytest.importorskip("torch")

import networks  # noqa: E402

ENTRIES = networks.all_builders()
from networks.builders import (  # noqa: E402
    diffusion,
    folding,
    images,
    recurrent,
    speech,
    tables,
)

#: Sides far from those that were traced: down to the least, where levels have a pixel or two.
OTHER_SIDES = [
    ("published_volumes:unet3d", 256), ("published:unet_medical", 1852),
    ("sd15-unet", 64), ("sd15-unet", 1024), ("published_images:efficientdet_d0", 1024),
    ("published_images:unet_industrial", 16),
    ("published_images:pixart_sigma", 512), ("published_images:sd3_medium", 2048),
    ("published_images:flux1", 32), ("published_images:flux2_klein_4b", 512),
    ("published_images:z_image", 512), ("published_images:qwen_image", 512),
    ("published_diffusion:sd2_unet", 128), ("published_diffusion:sdxl", 512),
    ("published_diffusion:sana_1600m", 2048),
]  # fmt: skip
#: Traced again in every run; the others where there is time.
QUICK = ("vae", "dqn", "published:ncf", "published_tables:dlrm_small")


def tasks_of(entry):
    return zoo_facts()[entry].jobs if entry in zoo_facts() else ("train", "infer")


@pytest.mark.parametrize(
    "entry", [pytest.param(e, marks=() if e in QUICK else pytest.mark.slow) for e in ENTRIES]
)
def test_tracing_again_gives_the_shipped_graph(entry):
    for task in tasks_of(entry):
        shipped = read_workload(networks.path_of(entry, task))
        traced = networks.traced(entry, task)
        assert shipped.num_parameters == traced.num_parameters
        assert networks.same(shipped, traced)


@pytest.mark.parametrize(
    ("entry", "side"),
    [("published_volumes:vnet", 64), ("published:unet_medical", 188), ("unet", 32)]
    + [pytest.param(*one, marks=pytest.mark.slow) for one in OTHER_SIDES],
)
def test_at_a_side_that_was_not_traced_a_graph_is_the_one_that_is_traced_there(entry, side):
    assert side not in networks.sides_of(entry).traced()
    for task in tasks_of(entry):
        shipped, traced = (
            load_workload(entry, task=task, image_size=side), networks.traced(entry, task, side)
        )  # fmt: skip
        assert networks.same(shipped, traced)
        assert shipped.input_description == traced.input_description
        assert shipped.sample_bytes == traced.sample_bytes


ASKED = networks.asked_entries()
#: Of models of libraries, these are traced again in every run; the others where there is time.
QUICK_OF_LIBRARIES = ("hf:minilm-l6", "timm:resnet34")


@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, marks=() if e in QUICK_OF_LIBRARIES else pytest.mark.slow) for e in ASKED],
)
def test_a_library_that_traces_as_when_it_was_written_gives_the_shipped_graph(entry):
    for task in ("train", "infer"):
        shipped, traced = load_workload(entry, task=task), trace_here(entry, task)
        assert shipped.num_parameters == traced.num_parameters
        assert networks.same(shipped, traced)


def test_models_of_libraries_ship_for_both_tasks_and_are_traced_in_other_sizes():
    for entry in ASKED:
        assert is_built_here(entry)
        assert all(networks.path_of(entry, task).exists() for task in ("train", "infer"))
    assert is_traced("timm:resnet34", task="train", image_size=288)
    assert not is_traced("timm:resnet34", task="train")


def test_what_is_shipped_without_a_builder_is_what_is_built_here():
    known = {*zoo_facts(), *names_of("published").entries}
    assert {entry for entry in known if not is_built_here(entry)} == set(ENTRIES)
    for entry in ENTRIES:
        for task in tasks_of(entry):
            assert networks.path_of(entry, task).exists()


def test_the_list_has_the_parameters_of_the_shipped_graphs():
    listed = {one.name: one for one in known_models()}
    for entry in ENTRIES:
        assert listed[entry].needs == "nothing"
        assert listed[entry].parameters == load_workload(entry).num_parameters


def built(module, name):
    with torch.device("meta"):
        return module.MODELS[name]()


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_the_recommender_of_the_terabyte_is_its_tables_and_perceptrons():
    values = sum(tables._CRITEO_15)
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    top = 481 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    model = built(tables, "dlrm_small")
    assert num_parameters(model) == values * 128 + bottom + top
    with torch.device("meta"):
        assert model(*model.inputs(3)).shape == (3, 1)


def test_the_recommender_with_crossings_is_its_tables_crossings_and_perceptrons():
    """204,184,588 rows of 128 columns; 27 vectors joined are 3456 wide."""
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    crossings = 3 * (3456 * 512 + 512 * 3456 + 3456)
    top = 3457 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    model = built(tables, "dlrm_dcnv2")
    assert num_parameters(model) == 204_184_588 * 128 + bottom + crossings + top
    assert model.num_values == 214
    with torch.device("meta"):
        assert model(*model.inputs(3)).shape == (3, 1)


def test_a_fusion_transformer_foretells_three_quantiles_of_a_day():
    model = built(tables, "tft_electricity")
    with torch.device("meta"):
        assert model(*model.inputs(5)).shape == (5, 24, 3)
    recurrent = sum(p.numel() for p in model.past_layer.parameters())
    assert recurrent == 4 * 128 * (128 + 128 + 2)


def test_text_that_is_spoken_has_256_samples_a_frame():
    for name in ("fastpitch_hifigan", "fastspeech_waveglow", "fastpitch_waveglow"):
        model = built(speech, name)
        with torch.device("meta"):
            text = model.inputs(2)
            frames = model.text(text)[0].shape[1]
            assert model(text).numel() == 2 * 256 * frames, name


def test_vocoders_have_the_parameters_of_their_releases():
    wave = built(speech, "fastspeech_waveglow").vocoder
    assert num_parameters(wave) == pytest.approx(87.7e6, rel=0.01)
    hifigan = built(speech, "hifigan")
    assert num_parameters(hifigan) == pytest.approx(13.92e6, rel=0.01)


def test_blocks_with_two_heads_have_twice_the_attention_of_those_with_one():
    one, two = (speech._SpeechBlock(heads=heads) for heads in (1, 2))
    assert two.qkv.weight.numel() == 2 * one.qkv.weight.numel()
    x = torch.randn(2, 7, 384)
    assert one.eval()(x).shape == two.eval()(x).shape == x.shape


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("rwkv7_0b1", 191_034_624), ("rwkv7_0b4", 450_767_872), ("rwkv7_1b5", 1_527_404_544),
     ("rwkv7_2b9", 2_947_735_040)],
)  # fmt: skip
def test_a_recurrence_of_states_has_the_parameters_of_its_paper(name, parameters):
    """arXiv:2503.14456, sizes of RWKV-7 World."""
    assert num_parameters(built(recurrent, name)) == parameters


RESIDUES, ROWS = 256, 128


def _count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.fixture(scope="module")
def alphafold():
    with torch.device("meta"):
        return folding.MODELS["alphafold2_256"]().model


def test_alphafold_has_the_parameters_of_its_release(alphafold):
    """params_model_1 of AlphaFold 2: 93,229,082 (recalled 2026-11-22)."""
    assert _count(alphafold) == 93_229_082


def test_a_block_does_a_product_of_every_weight_with_every_pair_or_residue(alphafold):
    """Products of attention and triangles come on top, and further sequences."""
    block = alphafold.blocks[0]
    pairs = _count(block.pairs) * RESIDUES**2
    rows = _count(block.rows, block.columns, block.transition) * RESIDUES * ROWS
    products = 2 * 2 * len(alphafold.blocks) * (pairs + rows)
    workload = load_workload("published_folding:alphafold2_256", task="infer")
    flop = workload.passes[0].graph.ops.flop.sum()
    assert products < flop < 3 * products


def test_what_goes_in_again_has_no_gradient():
    trained, run = (
        load_workload("published_folding:alphafold2_256", task=task).passes[0].graph.ops.flop.sum()
        for task in ("train", "infer")
    )
    assert trained == pytest.approx(2 * run, rel=0.05)
    assert "goes in again once" in folding.AlphaFold.taken


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sd2", 865_910_724), ("sdxl", 2_567_463_684), ("sana_1600m", 1_604_462_752)],
)
def test_a_denoiser_has_the_parameters_of_its_release(name, parameters):
    assert num_parameters(built(diffusion, name)) == parameters


@pytest.mark.parametrize("name", sampled(sorted(diffusion.MODELS), "sd2_unet", "sana_1600m"))
def test_a_denoiser_answers_in_the_shape_of_its_latents(name):
    model = built(diffusion, name)
    with torch.device("meta"):
        latents, *more = model.inputs(2)
        assert model(latents, *more).numel() == latents.numel()


def test_linear_attention_asks_twice_as_much_of_twice_the_patches():
    from torch.utils.flop_counter import FlopCounterMode

    layer = diffusion._LinearAttention(64, norm=False).to("meta")
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
    assert num_parameters(built(images, name)) == published


@pytest.mark.parametrize(
    ("name", "width", "published"),
    [("wan22_5b", 3072, 4_999_787_712), ("ltx_2b", 2048, 1_923_385_472), ("ltx_13b", 4096, 13e9)],
)
def test_a_film_has_the_weights_of_its_release_less_its_embeddings(name, width, published):
    """Of time, through two layers and into six scales, and of the text, through two."""
    time = 256 * width + width**2 + 6 * width**2
    text = 4096 * width + width**2
    total = num_parameters(built(images, name)) + time + text
    assert total == pytest.approx(published, rel=0.01)


def test_a_film_of_hunyuan_has_its_release_less_two_layers_that_refine_the_text():
    """12,821,012,544 with them: attention, feed-forward and two of six scales, and projections."""
    refiner = 2 * (12 + 2) * 3072**2 + 4096 * 3072 + 4 * 3072**2
    total = num_parameters(built(images, "hunyuan_video")) + refiner
    assert total == pytest.approx(12_821_012_544, rel=0.02)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("flux2_dev", 32), ("flux2_klein_4b", 4), ("flux2_klein_9b", 9), ("z_image", 6)],
)
def test_a_gated_transformer_of_diffusion_has_the_billions_of_its_release(name, billions):
    """As its release says, in whole ones: black-forest-labs/FLUX.2, Tongyi-MAI/Z-Image."""
    assert round(num_parameters(built(images, name)) / 1e9) == billions


@pytest.mark.parametrize(
    "name",
    sampled(
        ["flux1", "sd35_medium", "cogvideox_2b", "flux2_klein_4b", "z_image"],
        "cogvideox_2b",
        "flux2_klein_4b",
    ),
)
def test_text_goes_through_a_transformer_with_the_picture(name):
    """Twice the products of as many parameters as tokens meet, and the attention of both."""
    model = built(images, name)
    with torch.device("meta"):
        patches, prompt, vector = model.inputs(1)
        assert model(patches, prompt, vector).shape == patches.shape


def test_flux_asks_of_a_picture_what_its_weights_and_its_attention_do():
    from torch.utils.flop_counter import FlopCounterMode

    model = built(images, "flux1")
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model(*model.inputs(1))
    double, single, width, tokens, words = 19, 38, 3072, 4096, 512
    products = 2 * (tokens + words) * 12 * width**2 * (double + single)
    attention = 4 * (tokens + words) ** 2 * width * (double + single)
    assert counter.get_total_flops() == pytest.approx(products + attention, rel=0.002)


@pytest.mark.parametrize("name", ["published_images:flux1", "published_diffusion:sana_1600m"])
def test_a_denoiser_says_that_its_sample_is_one_step(name):
    assert "(assumed: a sample is one denoising step" in load_workload(name, task="infer").title


def test_shipped_graphs_leave_the_wheel_below_six_megabytes():
    """All else of the package takes 1.3 MB of a wheel."""
    graphs = (networks.MODEL / "zoo").rglob("*.npz")
    assert sum(path.stat().st_size for path in graphs) < 4_500_000


def test_a_transducer_has_the_layers_of_its_benchmark_and_steps_for_frames_and_letters() -> None:
    def layer(inputs, width):
        return 4 * width * (inputs + width + 2)

    sound = layer(240, 1024) + layer(1024, 1024) + layer(2048, 1024) + 2 * layer(1024, 1024)
    text = 28 * 320 + 2 * layer(320, 320)
    joined = (1024 + 1 + 320) * 512 + (512 + 1) * 29
    network = built(speech, "rnnt")
    assert sum(p.numel() for p in network.parameters()) == sound + text + joined
    with torch.device("meta"):
        assert [one.shape for one in network.inputs(2)] == [(2, 210, 240), (2, 94)]
        short = speech.Transducer(frames=6, letters=2)
        walked = short.eval()(*short.inputs(2))
        trained = short.train()(*short.inputs(2))
    assert walked.shape == (2, 3 + 2)
    assert trained.shape == (2, 3, 2, 29)


def test_ssd_on_a_mobilenet_has_the_operations_and_boxes_of_its_benchmark() -> None:
    told = load_workload("published_images:ssd_mobilenet_v1", task="infer")
    ops = told.passes[0].graph.ops
    flop = float((ops.flop @ monomials(1.0, 1.0)[0]).sum())
    assert flop == pytest.approx(2.47e9, rel=0.01), "MLPerf Inference benchmark, table 1"
    network = built(images, "ssd_mobilenet_v1").eval()
    with torch.device("meta"):
        maps = network(network.inputs(1))
    assert sum(one.numel() for one in maps) == 1917 * (91 + 4)
