"""What one item of inference is: pictures, recordings and answers, by hand and by law."""

from __future__ import annotations

import math

import numpy as np
import pytest

import paceline
from paceline.errors import InvalidInputError
from paceline.model.graph.graph import Owner, monomials
from paceline.model.graph.rows import at_length, with_rows
from paceline.model.items import StatedItem, as_items
from paceline.model.names.shipped_graphs import shipped_file
from paceline.model.reading.load import load_workload
from paceline.shipped import shipped_rows


def flop(one, batch=1.0, seq=1.0):
    return float((one.graph.ops.flop @ monomials([batch], [seq])[0]).sum())


def item_flop(workload):
    return sum(one.repeats * flop(one) for one in workload.passes)


def pictures(entry, **stated):
    raw = load_workload(entry, task="infer")
    return raw, as_items(raw, StatedItem(**stated))


@pytest.mark.parametrize(
    ("entry", "steps", "parts"),
    [
        ("published_images:pixart_sigma", 20, ("text_t5_xxl", "kl_decoder")),
        ("published_diffusion:sd2_base", 50, ("text_clip_h", "kl_decoder")),
        ("published_images:flux1", 28, ("text_clip_l", "text_t5_xxl", "kl_decoder")),
    ],
)
def test_a_picture_is_its_steps_its_text_and_its_decoder(entry, steps, parts):
    raw, found = pictures(entry)
    assert found.sample_unit == "images"
    assert {f"published_parts:{name}" for name in parts} == {
        one.graph.name.rpartition("/")[0] for one in found.passes[1:]
    }
    denoiser = found.passes[0]
    assert denoiser.repeats == steps
    assert math.isclose(flop(denoiser), flop(raw.passes[0]), rel_tol=1e-9)
    assert f"{steps} steps" in found.item


@pytest.mark.parametrize("entry", ["published_images:pixart_alpha", "published_diffusion:sd2_unet"])
def test_guidance_doubles_the_rows_of_every_step_and_of_the_text(entry):
    _, guided = pictures(entry, is_guided=True, denoising_steps=10)
    _, free = pictures(entry, is_guided=False, denoising_steps=10)
    decoder = flop(guided.passes[-1])
    assert math.isclose(item_flop(guided) - decoder, 2.0 * (item_flop(free) - decoder))


def test_a_picture_costs_in_proportion_to_its_steps_but_for_what_runs_once():
    few, many = (pictures("published_images:sd3_medium", denoising_steps=n)[1] for n in (4, 28))
    once = sum(flop(one) for one in few.passes[1:])
    assert math.isclose((item_flop(many) - once) / (item_flop(few) - once), 7.0)


def test_a_distilled_release_takes_the_steps_of_its_card():
    raw = load_workload("published_images:flux1", task="infer")
    assert as_items(raw, typed="black-forest-labs/FLUX.1-schnell").passes[0].repeats == 4
    assert as_items(raw, typed="FLUX.1-dev").passes[0].repeats == 28


def test_the_decoder_has_the_side_of_the_pictures():
    small, large = (
        as_items(load_workload("published_images:pixart_sigma", task="infer", image_size=side))
        for side in (512, 1024)
    )
    ratio = flop(large.passes[-1]) / flop(small.passes[-1])
    assert 4.0 < ratio < 4.5


def test_every_part_that_the_table_names_is_shipped_and_every_line_has_a_source():
    for row in shipped_rows("model", "inference_items.csv"):
        names = [f"text_{part.partition('@')[0]}" for part in row["text"].split()]
        for name in (*names, *filter(None, [row["decoder"]])):
            assert shipped_file(f"published_parts:{name}", "infer") is not None
        assert row["source"]
        assert row["decoder"] or row["left_out"] or not row["steps"]


def test_a_longer_recording_is_read_in_windows_and_written_in_as_many():
    raw = load_workload("whisper-small", task="infer")
    short, long = (as_items(raw, StatedItem(sound_s=s)) for s in (30.0, 90.0))
    assert short.sample_unit == long.sample_unit == "seconds of sound"
    assert (short.samples_per_item, long.samples_per_item) == (30.0, 90.0)
    for one, other in zip(short.passes, long.passes, strict=True):
        assert math.isclose(flop(other, seq=50.0), 3.0 * flop(one, seq=50.0))


@pytest.mark.parametrize("entry", ["t5-base", "whisper-small"])
def test_beams_are_rows_of_what_is_written_and_of_its_caches_alone(entry):
    raw = load_workload(entry, task="infer")
    one, five = as_items(raw), as_items(raw, StatedItem(beams=5))
    (read, write), (read_5, write_5) = one.passes, five.passes
    assert flop(read_5) == flop(read)
    assert math.isclose(flop(write_5, seq=64.0), 5.0 * flop(write, seq=64.0))
    caches = [
        float(
            (one.graph.storages.elements[one.graph.storages.owner == Owner.KV_CACHE].sum(axis=0))
            @ monomials([1.0], [64.0])[0]
        )
        for one in (write, write_5)
    ]
    assert math.isclose(caches[1], 5.0 * caches[0])
    assert "5 beams" in five.item


@pytest.mark.parametrize("entry", ["t5-base", "whisper-small"])
def test_an_encoder_decoder_reads_once_and_writes_token_by_token(entry):
    found = as_items(load_workload(entry, task="infer"))
    assert [one.name for one in found.passes] == ["encode", "decode"]
    assert found.generates
    assert found.encodes
    # One token runs each weight of the decoder once, for a multiply and an add.
    assert flop(found.passes[1]) < 2.1 * found.num_parameters


@pytest.mark.parametrize("model", ["marian", "m2m100-418m", "bart-base"])
@pytest.mark.slow
def test_translators_of_the_hub_are_encoder_decoders_known_at_every_length(model):
    pytest.importorskip("transformers")
    found = as_items(load_workload(f"hf:{model}", task="infer"))
    assert [one.name for one in found.passes] == ["encode", "decode"]
    assert not found.has_fixed_length


@pytest.mark.parametrize(
    ("entry", "stated", "option"),
    [
        ("resnet50", StatedItem(denoising_steps=20), "--denoising-steps"),
        ("bert-base", StatedItem(is_guided=False), "--guidance"),
        ("gpt2", StatedItem(sound_s=30.0), "--sound"),
        ("vit_b_16", StatedItem(beams=4), "--beams"),
    ],
)
def test_what_an_item_has_not_is_refused(entry, stated, option):
    with pytest.raises(InvalidInputError, match=option):
        as_items(load_workload(entry, task="infer"), stated)


@pytest.mark.parametrize(
    ("entry", "more"), [("sd15-unet", 1), ("published_diffusion:sdxl_unet", 0)]
)
def test_a_scheduler_may_take_more_passes_than_steps(entry, more):
    """PNDM, as Stable Diffusion 1.5 is published with, begins its second step twice."""
    raw = load_workload(entry, task="infer")
    for steps in (20, None):
        found = as_items(raw, StatedItem(denoising_steps=steps))
        assert found.passes[0].repeats == (steps or 50) + more


def test_training_has_no_items_of_inference():
    raw = load_workload("sd15-unet", task="train")
    assert as_items(raw) is raw
    with pytest.raises(InvalidInputError, match="--denoising-steps"):
        as_items(raw, StatedItem(denoising_steps=20))


@pytest.mark.parametrize(
    ("name", "sound_s", "times"),
    [("published_frames:deepspeech2", 24.6, 2.0), ("whisper-small", 40.0, 2.0)],
)
def test_longer_recordings_are_more_of_the_traced_one(name, sound_s, times):
    """Whisper hears whole windows of 30 s."""
    raw = load_workload(name, task="train")
    longer = as_items(raw, StatedItem(sound_s=sound_s))
    more, once = (flop(one.passes[0], 16, one.default_seq) for one in (longer, raw))
    assert more == pytest.approx(times * once, rel=0.02)
    assert longer.sample_unit == raw.sample_unit


@pytest.mark.parametrize("name", ["wav2vec2-base", "published_frames:deepspeech2"])
def test_a_stated_length_of_sound_is_the_only_one_that_is_printed(name):
    raw = load_workload(name, task="train")
    longer = as_items(raw, StatedItem(sound_s=17.0))
    traced = raw.input_description.partition(" s of sound")[0]
    assert f"{traced} s of sound" not in longer.input_description
    assert longer.sample_bytes == pytest.approx(raw.sample_bytes * 17.0 / float(traced))


@pytest.mark.parametrize("name", ["hubert-base", "wavlm-large", "conformer-ctc-large"])
def test_a_network_of_any_length_hears_a_recording_whole(name):
    """The length of its trace is no window: half a second more is half a second more of work."""
    raw = load_workload(name, task="infer")
    short, long = (as_items(raw, StatedItem(sound_s=s)) for s in (8.0, 12.5))
    assert flop(long.passes[0]) == pytest.approx(12.5 / 8.0 * flop(short.passes[0]))
    assert "window" not in long.item
    assert long.input_description.startswith("12.5 s of sound")


def test_who_hears_nothing_is_told_so():
    with pytest.raises(InvalidInputError, match="hears no sound"):
        as_items(load_workload("gpt2", task="train"), StatedItem(sound_s=9))


def test_a_pass_is_what_it_was_where_nothing_more_is_meant():
    for entry in ("resnet50", "gpt2", "bert-base"):
        raw = load_workload(entry, task="infer")
        assert as_items(raw) is raw


@pytest.mark.parametrize(
    "stated",
    [StatedItem(denoising_steps=20, is_guided=False), StatedItem(sound_s=45.0, beams=5)],
)
def test_what_is_stated_is_read_as_it_is_written(stated):
    words = dict(word.split("=") for word in str(stated).split())
    assert StatedItem.taken_from(words) == stated
    assert not words


def test_what_cannot_be_stated_is_refused():
    for words in ({"steps": "many"}, {"guidance": "perhaps"}, {"steps": "0"}, {"sound": "-1"}):
        with pytest.raises(InvalidInputError):
            StatedItem.taken_from(dict(words))


def test_rows_and_lengths_change_no_graph_but_its_sizes():
    graph = load_workload("bert-base", task="infer").passes[0].graph
    points = monomials([3.0], [128.0])[0]
    twice, fixed = with_rows(graph, 2.0), at_length(graph, 128.0)
    assert np.allclose(twice.ops.flop @ points, graph.ops.flop @ monomials([6.0], [128.0])[0])
    assert np.allclose(fixed.ops.flop @ monomials([3.0], [7.0])[0], graph.ops.flop @ points)
    assert fixed.variables == ("batch", "")


def test_the_code_of_a_pipeline_takes_its_share_where_passes_run_op_by_op():
    """An A100 makes SDXL's picture of 30 steps in 3.3 s (PyTorch blog, SDPA, eager)."""
    facts = {"device": "a100 pcie 80gb", "task": "infer", "batch": (1,), "denoising_steps": 30}
    grid = paceline.predict("published_diffusion:sdxl", **facts)
    found = grid.cells[0].step_s
    assert found.low < 3.3 < found.high
    assert found.mid == pytest.approx(3.3, rel=0.2)


@pytest.mark.parametrize("name", ["wav2vec2-base", "whisper-small"])
def test_training_says_the_length_of_its_recordings_and_how_to_change_it(name):
    raw = load_workload(name, task="train")
    told, stated = (as_items(raw, StatedItem(sound_s=s)) for s in (None, 60.0))
    assert "(change with --sound)" in told.item
    assert told.passes == raw.passes
    assert stated.item != told.item
