"""How much is to be done, in items, epochs and words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sampled import zoo_names

from paceline.errors import InvalidInputError
from paceline.model.items import StatedItem, as_items
from paceline.model.reading.load import load_workload
from paceline.planning.goal.amounts import check_global_batch, resolve_job
from paceline.planning.goal.goal import Work


def job(name, work=None, *, task="train", seq=None):
    model = load_workload(name, task=task)
    return resolve_job(model, work or Work(), seq=seq or model.default_seq)


@pytest.mark.parametrize("name", zoo_names())
def test_every_zoo_model_has_a_reference_job_that_says_how_to_change_it(name):
    found = job(name)
    assert found.assumption.startswith("reference job")
    assert "--" in found.assumption
    assert found.text


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2"])
def test_nobody_pretrains_adapters(name):
    model = load_workload(name)
    found = resolve_job(model, Work(), seq=model.default_seq, rewrite="lora_rank=16")
    assert found.amount.items_per_epoch is None
    assert "--tokens" in found.assumption
    stated = Work(num_tokens=1e7)
    adapted = resolve_job(model, stated, seq=model.default_seq, rewrite="lora_rank=16")
    assert adapted == job(name, stated)


def test_images_are_items():
    found = job("resnet50", Work(num_samples=1000, num_epochs=2))
    assert found.amount.items_per_epoch == 1000
    assert found.amount.num_epochs == 2
    assert found.text == "1,000 images × 2 epochs"
    assert not found.assumption


def test_tokens_are_cut_into_sequences():
    found = job("gpt2", Work(num_tokens=10_000_000), seq=1024)
    assert found.amount.items_per_epoch == -(-10_000_000 // 1024)
    assert found.amount.samples_per_item == 1024


def test_an_answer_counts_its_output_tokens():
    found = job("gpt2", Work(num_tokens=1280, output_tokens=128), task="infer")
    assert found.amount.items_per_epoch == 10


def test_samples_of_sound_are_recordings_of_their_length():
    model = as_items(load_workload("whisper-small", task="infer"), StatedItem(sound_s=3600.0))
    found = resolve_job(model, Work(num_samples=7), seq=1)
    assert found.text == "7 recordings of 3,600 s"
    assert found.num_samples == 7 * 3600.0
    assert found.amount.items_per_epoch == 7


def test_a_stream_has_no_end():
    found = job("gpt2", Work(requests_per_s=3.0, output_tokens=100), task="infer")
    assert found.amount.items_per_epoch is None
    assert found.amount.samples_per_s == 300.0


def test_epochs_alone_take_the_samples_of_the_reference_job():
    found = job("resnet50", Work(num_epochs=3))
    assert found.amount.items_per_epoch == 1_281_167
    assert "reference job" in found.assumption


def test_epochs_of_a_named_data_set_take_its_samples():
    model = replace(load_workload("resnet50"), reference_job=None)
    found = resolve_job(model, Work(num_epochs=3), seq=1, data="coco")
    assert found.amount.items_per_epoch == 118_287
    assert "coco" in found.assumption
    stated = resolve_job(model, Work(num_epochs=3, num_samples=7), seq=1, data="coco")
    assert stated.amount.items_per_epoch == 7
    with pytest.raises(InvalidInputError, match="no reference job"):
        resolve_job(model, Work(num_epochs=3), seq=1, data="ready")


def test_tokens_of_an_image_model_are_refused():
    with pytest.raises(InvalidInputError, match="images"):
        job("resnet50", Work(num_tokens=1000))


def test_epochs_without_a_reference_job_are_refused():
    model = replace(load_workload("resnet50"), reference_job=None)
    with pytest.raises(InvalidInputError, match="no reference job"):
        resolve_job(model, Work(num_epochs=3), seq=1)


@pytest.mark.parametrize("work", [Work(num_samples=1e18, num_epochs=2), Work(num_epochs=1e13)])
def test_more_work_than_can_be_counted_is_refused(work):
    with pytest.raises(InvalidInputError, match="more than can be counted"):
        job("resnet50", work)


def test_requests_of_a_training_job_are_refused():
    with pytest.raises(InvalidInputError, match="served, not trained"):
        job("resnet50", Work(requests_per_s=5.0))


def test_a_global_batch_is_no_larger_than_an_epoch():
    small = job("resnet50", Work(num_samples=100))
    model = load_workload("resnet50")
    check_global_batch(100, small, model)
    check_global_batch(101, small, load_workload("resnet50", task="infer"))
    with pytest.raises(InvalidInputError, match="101 is more than the 100 images of an epoch"):
        check_global_batch(101, small, model)


def test_an_epoch_of_tokens_is_counted_in_sequences():
    short = job("gpt2", Work(num_tokens=10_240), seq=1024)
    with pytest.raises(InvalidInputError, match="more than the 10 sequences of 1,024 tokens"):
        check_global_batch(11, short, load_workload("gpt2"))


@pytest.mark.parametrize(("name", "seq"), [("gpt2", 512), ("roberta-base", 128)])
def test_a_sample_of_a_language_model_is_a_sequence_of_the_stated_length(name, seq):
    samples = job(name, Work(num_samples=10_000, num_epochs=3), seq=seq)
    tokens = job(name, Work(num_tokens=10_000 * seq, num_epochs=3), seq=seq)
    assert samples.amount == tokens.amount
    assert samples.amount.items_per_epoch == 10_000
    assert samples.text == f"10,000 sequences of {seq} tokens × 3 epochs"
