"""Global batches leave a useful number of optimizer steps, whatever a recipe allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.model.reading.load import load_workload
from paceline.planning.goal.amounts import resolve_job
from paceline.planning.goal.batch_limit import batch_limit_of, kind_of
from paceline.planning.goal.goal import Work
from paceline.shipped import shipped_rows

ROWS = shipped_rows("planning", "batch_limits.csv")
FACT = {(row["kind"], row["fact"]): float(row["value"]) for row in ROWS}


def limit(name, rewrite="", **work):
    workload = load_workload(name)
    job = resolve_job(workload, Work(**work), seq=workload.default_seq)
    return batch_limit_of(workload, job, rewrite), job


@pytest.mark.parametrize("name", ["gpt2-xl", "mistral-7b", "opt-1.3b"])
def test_fine_tuning_takes_as_many_steps_as_the_shortest_published(name):
    for tokens in np.geomspace(1e7, 1e10, 7):
        found, job = limit(name, "lora_rank=8", num_tokens=int(tokens))
        steps = job.amount.items_per_epoch / found.max_items
        is_small = found.max_items <= FACT["fine-tuning", "harmless_batch"]
        assert steps >= FACT["fine-tuning", "fewest_steps"] or is_small
        assert found.max_items <= FACT["fine-tuning", "largest_batch"]
        assert "fine-tuning" in found.why


@pytest.mark.parametrize("name", ["gpt2", "vgg16", "vit-b-16"])
def test_the_limit_never_falls_with_the_work(name):
    unit = {"gpt2": "num_tokens"}.get(name, "num_samples")
    for rewrite in ("", "lora_rank=4"):
        limits = [
            limit(name, rewrite, **{unit: int(n)})[0].max_items for n in np.geomspace(1e3, 1e12, 10)
        ]
        if not rewrite:
            assert limits == sorted(limits)
        assert all(size & (size - 1) == 0 or size == limits[-1] for size in limits)


def test_a_reference_recipe_rules_its_own_job():
    for name in ("resnet50", "gpt2", "bert-large"):
        found, _ = limit(name)
        assert found.max_items == load_workload(name).max_global_batch
        assert "reference recipe" in found.why


def test_fewer_tokens_than_parameters_start_from_weights_that_are_there():
    workload = load_workload("gpt2")
    for tokens, kind in ((10**7, "fine-tuning"), (10**10, "training")):
        job = resolve_job(workload, Work(num_tokens=tokens), seq=1024)
        assert kind_of(workload, job) == kind


def test_a_model_without_a_recipe_takes_useful_batches_too():
    workload = replace(load_workload("mnist-cnn"), max_global_batch=None)
    for samples in (50_000, 5_000_000):
        job = resolve_job(workload, Work(num_samples=samples, num_epochs=10.0), seq=1)
        found = batch_limit_of(workload, job)
        assert samples * 10 / found.max_items >= FACT["training", "fewest_steps"]


@pytest.mark.parametrize(
    ("name", "samples"),
    [("unet", 4_000), ("published_upscalers:edsr", 800), ("efficientnet_b0", 50_000)],
)
def test_a_job_of_many_epochs_takes_a_useful_number_of_steps_in_each(name, samples):
    """Or its batches are already so small that they do no harm."""
    for epochs in (2.0, 30.0, 1000.0):
        found, _ = limit(name, num_samples=samples, num_epochs=epochs)
        is_small = found.max_items <= FACT["training", "harmless_batch"]
        assert is_small or samples / found.max_items >= FACT["training", "fewest_steps_an_epoch"]


def test_a_network_of_a_kind_that_is_published_takes_no_larger_batches():
    """A detector of COCO without a recipe of its own is trained in hundreds, not in thousands."""
    name = "torchvision:keypointrcnn_resnet50_fpn"
    workload = replace(load_workload("torchvision:fcos_resnet50_fpn"), name=name)
    job = resolve_job(workload, Work(num_samples=10**9, num_epochs=30.0), seq=1)
    found = batch_limit_of(workload, job)
    assert (found.max_items, "published" in found.why) == (256, True)
    assert all(
        row["source"] and row["read_on"] for row in shipped_rows("planning", "recipe_batches.csv")
    )


def test_without_work_and_recipe_there_is_no_limit():
    workload = replace(load_workload("mnist-cnn"), max_global_batch=None, reference_job=None)
    job = resolve_job(workload, Work(), seq=1)
    assert batch_limit_of(workload, job).max_items is None


def test_every_figure_says_where_it_was_read():
    assert all(row["source"] and row["read_on"] for row in ROWS)


@pytest.mark.parametrize(
    ("name", "tokens", "published"),
    [("tinyllama-1.1b", 3e12, 2e6), ("pythia-6.9b", 3e11, 2e6), ("opt-13b", 1.8e11, 4e6)],
)
def test_text_without_a_recipe_trains_in_batches_near_published_ones(name, tokens, published):
    """TinyLlama, Pythia and OPT say 2, 2 and 4 M tokens a step (their papers, recalled)."""
    found, job = limit(name, num_tokens=int(tokens))
    chosen = found.max_items * job.num_samples / job.amount.items_per_epoch
    assert published / 4 < chosen < 4 * published
    assert "M tokens" in found.why


def test_steps_hold_no_fewer_items_than_published_ones():
    found, _ = limit("mistral-7b", "lora_rank=8", num_tokens=10**7)
    assert found.least_items == FACT["fine-tuning", "least_batch"] <= found.max_items
    found, _ = limit("resnet50")
    assert found.least_items == FACT["training", "least_batch"]
