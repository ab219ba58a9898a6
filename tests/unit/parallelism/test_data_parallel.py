from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.parallelism.links_of_tests import (
    ETHERNET,
    INFINIBAND,
    NOTHING,
    NVLINK,
    PCIE,
    SWITCH,
    make_link,
)

from paceline.parallelism.collectives.failures import step_variation_frac, straggler_factor
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, all_reduce_s
from paceline.parallelism.replicas.data_parallel import (
    BUCKET_BYTES,
    GradientProfile,
    data_parallel_step,
)


def step(ranks, *, device=SWITCH, node=INFINIBAND, gradients=100e6, **keywords):
    defaults = {"mid_s": 0.1, "backward_s": 0.06, "ranks_per_node": 8, "parameter_bytes": 50e6}
    return data_parallel_step(
        gradient_bytes=gradients,
        num_ranks=ranks,
        device_link=device,
        node_link=node,
        **(defaults | keywords),
    )


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_one_device_is_not_slowed(sharding) -> None:
    alone = step(1, sharding=sharding, device=NOTHING, node=NOTHING)
    assert alone.mid_s[0] == 0.1
    assert alone.communication_s[0] == 0.0


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_a_step_is_what_one_device_takes_and_what_is_exposed(sharding) -> None:
    together = step(64, sharding=sharding)
    assert together.mid_s[0] == pytest.approx(0.1 + together.exposed_communication_s[0])


def test_ranks_wait_for_the_slowest_even_where_nothing_is_sent() -> None:
    silent = step(64, gradients=0.0)
    waiting_s = 0.1 * (straggler_factor(np.array([64.0]), step_variation_frac())[0] - 1.0)
    assert silent.exposed_communication_s[0] >= waiting_s > 0


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("node", [INFINIBAND, ETHERNET])
def test_more_devices_never_step_faster(sharding, node) -> None:
    times = [step(n, node=node, sharding=sharding).mid_s[0] for n in (1, 8, 16, 64, 1024)]
    assert np.all(np.diff(times) >= 0)


@given(
    st.floats(1e3, 1e11), st.floats(1e-4, 10.0), st.sampled_from([2, 8, 64]), st.floats(0.0, 1.0)
)
def test_exposed_lies_between_the_last_bucket_and_everything(
    gradients: float, backward_s: float, ranks: int, spread: float
) -> None:
    ready = np.linspace(spread, 1.0, 50)
    profile = GradientProfile.from_tensors(ready, np.full(50, gradients / 50))
    for chosen in (None, profile):
        found = step(
            ranks, gradients=gradients, backward_s=backward_s, mid_s=2 * backward_s, profile=chosen
        )
        assert 0 <= found.exposed_communication_s[0] <= found.communication_s[0] * (1 + 1e-9)


@given(st.floats(0.0, 1.0), st.floats(1e-4, 10.0), st.floats(1e3, 1e11))
def test_what_is_ready_early_is_never_counted_as_time_won(
    ready: float, backward_s: float, gradients: float
) -> None:
    """Backward goes on after the last gradient where the input of the first layer needs one."""
    profile = GradientProfile.from_tensors(np.linspace(0.0, ready, 50), np.full(50, gradients / 50))
    found = step(
        8, gradients=gradients, backward_s=backward_s, mid_s=2 * backward_s, profile=profile
    )
    waiting_s = 2 * backward_s * (straggler_factor(8, step_variation_frac()) - 1)
    assert found.exposed_communication_s[0] >= waiting_s * (1 - 1e-9)


def test_nothing_is_sent_before_the_first_bucket_is_full() -> None:
    num_buckets, backward_s = 20, 0.1
    slow = step(
        8, device=ETHERNET, gradients=float(num_buckets * BUCKET_BYTES), backward_s=backward_s,
        mid_s=0.2,
    )  # fmt: skip
    waiting_s = 0.2 * (straggler_factor(8, step_variation_frac()) - 1)
    sent_s, exposed_s = (
        seconds[0] - waiting_s for seconds in (slow.communication_s, slow.exposed_communication_s)
    )
    assert exposed_s == pytest.approx(sent_s - backward_s * (1 - 1 / num_buckets))


def test_splitting_parameters_sends_half_as_much_again() -> None:
    """Rajbhandari et al., SC 2020, section 7.2: ZeRO-3 sends 1.5 times what data parallel does."""
    ring = LinkTable.from_links([make_link("any", kind="generic")])
    split = step(
        8, gradients=1e12, parameter_bytes=1e12, device=ring, mid_s=1e-9, backward_s=0.0,
        sharding="zero3",
    )  # fmt: skip
    reduce_s = all_reduce_s(1e12, RankGroup.of(8, 8, ring, NOTHING))[0]
    assert split.communication_s[0] == pytest.approx(1.5 * reduce_s, rel=0.01)
    assert split.exposed_communication_s[0] <= split.communication_s[0]
    assert split.exposed_communication_s[0] == pytest.approx(split.communication_s[0], rel=0.02)


def test_a_long_backward_hides_all_but_the_last_bucket() -> None:
    num_buckets = 20
    size = float(num_buckets * BUCKET_BYTES)
    hidden = step(8, gradients=size, backward_s=100.0, mid_s=200.0)
    last = all_reduce_s(BUCKET_BYTES, RankGroup.of(8, 8, SWITCH, INFINIBAND))
    waiting_s = 200.0 * (straggler_factor(8, step_variation_frac()) - 1)
    assert hidden.exposed_communication_s[0] == pytest.approx(waiting_s + last[0], rel=1e-9)
    assert hidden.communication_s[0] == pytest.approx(waiting_s + num_buckets * last[0], rel=1e-9)


def test_gradients_that_come_early_hide_better() -> None:
    """AlexNet's dense layers, most of its parameters, come first in backward."""
    sizes = np.linspace(1.0, 9.0, 60) * 1e6
    ready = np.linspace(0.02, 1.0, 60)
    early, late = (GradientProfile.from_tensors(ready, s) for s in (sizes[::-1], sizes))
    keywords = {"device": PCIE, "gradients": sizes.sum()}
    assert step(8, profile=early, **keywords).mid_s[0] < step(8, profile=late, **keywords).mid_s[0]


def test_many_ranks_want_large_buckets() -> None:
    """A ring of N ranks takes N - 1 hops for every bucket, however small."""

    def sent_s(ranks: int, bucket_bytes: float) -> float:
        whole = step(ranks, gradients=10e9, bucket_bytes=bucket_bytes)
        return float(whole.communication_s[0] - waited_s(ranks))

    def waited_s(ranks: int) -> float:
        return 0.1 * (straggler_factor(np.array([ranks]), step_variation_frac())[0] - 1.0)

    gained = [sent_s(ranks, BUCKET_BYTES) / sent_s(ranks, 1e9) for ranks in (16, 256, 4096)]
    assert 1.0 < gained[0] < gained[1] < gained[2]
    assert step(64, bucket_bytes=BUCKET_BYTES).mid_s == step(64).mid_s


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
def test_a_gather_hides_behind_the_next_forward_pass_but_for_its_first_bucket(sharding) -> None:
    calls = {"gradients": 10e9, "parameter_bytes": 10e9, "sharding": sharding}
    bare, some, all_of_it = (
        step(64, forward_s=forward_s, **calls).exposed_communication_s[0]
        for forward_s in (0.0, 0.01, 1e3)
    )
    assert bare - some == pytest.approx(0.01)
    assert bare > some > all_of_it > 0.0
    assert step(64, sharding="none").mid_s == step(64, forward_s=1e3, sharding="none").mid_s


def test_buckets_close_like_those_of_ddp() -> None:
    """The first bucket holds 1 MiB, the others 25 MiB; a larger tensor closes its own."""
    mib = 2.0**20
    sizes = np.array([0.5, 0.6, 10.0, 10.0, 10.0, 400.0, 3.0]) * mib
    profile = GradientProfile.from_tensors(np.linspace(0.1, 0.7, 7), sizes)
    assert profile.num_buckets == 4
    assert profile.time_frac == pytest.approx([0.2, 0.5, 0.6, 0.7])
    assert profile.left_frac * sizes.sum() / mib == pytest.approx([434.1, 433.0, 403.0, 3.0])
    assert profile.last_frac * sizes.sum() == pytest.approx(3.0 * mib)


def test_the_old_data_parallel_is_slower_and_stays_in_one_node() -> None:
    keywords = {"device": PCIE, "parameter_bytes": 100e6}
    modern = step([2, 4, 8], **keywords)
    old = step([2, 4, 8], gradient_sync="single_process", **keywords)
    assert np.all(old.mid_s > modern.mid_s)
    assert np.isinf(step(16, gradient_sync="single_process", **keywords).mid_s[0])


def test_a_parameter_server_is_the_bottleneck_of_many() -> None:
    served = step(
        [16, 64, 256], gradient_sync="parameter_server", parameter_bytes=100e6, mid_s=1e-9,
        backward_s=0.0,
    )  # fmt: skip
    growth = served.exposed_communication_s[1:] / served.exposed_communication_s[:-1]
    assert growth == pytest.approx([4.0, 4.0], rel=0.01)


def test_without_a_network_the_candidate_takes_for_ever() -> None:
    found = step([8, 16], node=NOTHING)
    assert np.isfinite(found.mid_s[0])
    assert np.isinf(found.mid_s[1])


def test_candidates_are_independent() -> None:
    together = step([1, 2, 8, 64, 512]).mid_s
    apart = [step(n).mid_s[0] for n in (1, 2, 8, 64, 512)]
    assert together.tolist() == apart


def test_nvlink_with_and_without_switch_differ_only_in_the_reduction() -> None:
    keywords = {"gradients": 4e9, "backward_s": 1e-6}
    with_switch, without = (step(8, device=d, **keywords).mid_s[0] for d in (SWITCH, NVLINK))
    assert with_switch < without


def _of_three_more_reductions(sharding: str, parameter_bytes: float) -> float:
    one, four = (
        step(64, sharding=sharding, parameter_bytes=parameter_bytes, num_reductions=n)
        for n in (1, 4)
    )
    return float(four.communication_s[0] - one.communication_s[0])


def test_every_microbatch_reduces_and_only_zero_3_gathers_in_each() -> None:
    """ZeRO-2 keeps its parameters whole: it gathers what was updated, once in a step."""
    few, many = (_of_three_more_reductions("zero2", size) for size in (1e6, 1e10))
    assert few == pytest.approx(many)
    assert few > 0
    assert _of_three_more_reductions("zero3", 1e10) > 2 * many


def test_zero_2_scatters_blocks_and_not_buckets_of_25_megabytes() -> None:
    """A hundred small rings over many ranks would wait for the network's latency."""
    big = {"gradients": 1e10, "sharding": "zero2", "parameter_bytes": 0.0}
    assert (
        step(1024, **big).communication_s
        < 0.7 * step(1024, **(big | {"sharding": "zero1"})).communication_s
    )
