from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.legality import check_strategy
from paceline.parallelism.strategy.strategy import Strategy


def cluster(inside: str | None = "dgx-h100-nvls", between: str | None = "dgx-h100-ib") -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"),
        devices_per_node=8,
        device_link=links[inside] if inside else None,
        node_link=links[between] if between else None,
    )


def check(text: str, on: Cluster | None = None, *, devices: int, batch: int = 64) -> None:
    check_strategy(
        Strategy.parse(text),
        on or cluster(),
        num_devices=devices,
        global_batch=batch,
        num_blocks=14,
    )


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("dp1", 1),
        ("dp8", 8),
        ("pp2.dp4.tp8@1f1b/mb8", 64),
        ("pp2@interleaved2/mb4", 2),
        ("dp2.fsdp8", 16),
        ("dp2.ep4.cp2", 16),
    ],
)
def test_sensible_strategies_pass(text, devices) -> None:
    check(text, devices=devices)


@pytest.mark.parametrize(
    ("text", "devices", "said", "hint"),
    [
        ("dp8", 16, "8 ranks, not 16", "product"),
        ("dp3/mb2", 3, "does not divide into 3 replicas × 2", "66"),
        ("pp16@1f1b/mb64", 16, "16 pipeline stages are more than the model's 14", "at most 14"),
        ("pp4@interleaved2/mb2", 4, "multiple of 4", "1f1b"),
        ("dp16+single-process", 16, "at most the 8 devices", "process per device"),
        ("dp2.tp16:device", 32, "should stay inside a node", "right"),
        ("dp12", 12, "12 devices do not fill nodes of 8", "16"),
        ("dp2.ep8/mb8", 16, "does not divide into 16 replicas × 8", "128"),
        ("tp8.dp2", 16, "an order that has no cost model", "dp . tp"),
        ("dp8;head=dp:replicate", 8, "no cost model", "drop"),
    ],
)
def test_what_cannot_run_says_why(text, devices, said, hint) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        check(text, devices=devices)
    assert hint in caught.value.hint


def test_interleaved_stages_may_hold_the_embedding_and_the_loss_alone() -> None:
    """Llama 3.1 405B runs 126 layers on 16 × 8 stages (published with Megatron-Bridge)."""
    check("pp4@interleaved4/mb4", devices=4)
    with pytest.raises(InvalidInputError, match="20 pipeline stages are more"):
        check("pp4@interleaved5/mb4", devices=4)


def test_tensor_parallel_across_ethernet_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="tensor parallel across `eth-100`"):
        check("dp8.tp16", cluster(between="eth-100"), devices=128)


def test_links_must_be_there() -> None:
    with pytest.raises(InvalidInputError, match="link between nodes"):
        check("dp16", cluster(between=None), devices=16)
    with pytest.raises(InvalidInputError, match="link between devices of a node"):
        check("dp8", cluster(inside=None), devices=8)
