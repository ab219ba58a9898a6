from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.deployment.job import job_of
from paceline.deployment.settings import DeploySettings, label_of
from paceline.errors import InvalidInputError, MissingFactError, UnknownNameError
from paceline.planfile import PlannedShare

from . import plans


def test_a_job_asks_for_no_more_than_the_machine_has() -> None:
    job = job_of(plans.plan(), plans.training())
    assert job.cpus_per_node < 96
    assert job.memory_bytes + job.shm_bytes // 4 < 1152e9
    assert job.ranks_per_node == job.devices_per_node == 8


def test_the_checkpoint_interval_is_young_s_where_saves_are_short() -> None:
    """Two roads to one number: Daly's interval tends to Young's sqrt(2 d M) for a short save."""
    spot = plans.two_nodes(is_spot=True)
    job = job_of(spot, plans.training())
    month_s, band = 365.25 / 12 * 86_400, 0.1
    spot_rate = 2 * -math.log1p(-band) / month_s
    failure_rate = 16 / (54 * 86_400 * 16_384 / 419)
    young_s = math.sqrt(2 * job.saving.save_s / (spot_rate + failure_rate))
    assert job.saving.interval_s == pytest.approx(young_s, rel=0.02)


def test_spot_machines_save_more_often() -> None:
    owned, spot = (job_of(plans.two_nodes(is_spot=s), plans.training()) for s in (False, True))
    assert owned.saving.interval_s is not None
    assert spot.saving.interval_s is not None
    assert spot.saving.interval_s < owned.saving.interval_s


def test_an_adam_state_makes_a_checkpoint_half_as_big_again() -> None:
    adam = plans.plan(workload=plans.workload(optimizer="adamw"))
    sizes = [job_of(p, plans.training()).saving.checkpoint_bytes for p in (plans.plan(), adam)]
    assert sizes[1] / sizes[0] == pytest.approx(1.5)


@given(st.floats(60, 1e7), st.floats(1e6, 1e11))
def test_the_wall_time_covers_the_upper_bound_in_whole_minutes(high_s: float, rate: float) -> None:
    interval = plans.Interval(low=high_s / 2, mid=high_s / 1.5, high=high_s)
    plan = plans.plan(plans.choice(time_s=interval))
    job = job_of(plan, plans.training(checkpoint_write_bytes_per_s=rate))
    assert job.saving.wall_time_s is not None
    assert job.saving.wall_time_s >= high_s + 300
    assert job.saving.wall_time_s % 60 == 0


def test_threads_are_shared_among_the_ranks() -> None:
    environment = dict(job_of(plans.plan(), plans.training()).environment)
    assert int(environment["OMP_NUM_THREADS"]) * 8 <= 86


def test_a_measurement_sweeps_up_to_the_planned_point() -> None:
    job = job_of(plans.plan(), DeploySettings(purpose="measure"))
    assert job.command[:3] == ("paceline", "measure", "resnet50")
    assert "32,64,128,256" in job.command
    assert "1,2,4,8" in job.command
    assert job.num_nodes == 1


@pytest.mark.parametrize(
    ("plan", "settings", "says", "where"),
    [
        (plans.plan(), DeploySettings(), "which script trains ResNet-50", "--command"),
        (plans.plan(plans.choice(time_s=None)), plans.training(), "no wall time", "wall-time="),
        (plans.plan(plans.choice(stack=None)), plans.training(), "no software", "stack resolve"),
        (plans.plan(plans.choice(place=plans.place(num_vcpus_per_node=None))),
         plans.training(), "CPUs of aws/p4d", "cpus="),
        (plans.plan(plans.choice(place=plans.place(host_memory_bytes_per_node=None))),
         plans.training(), "main memory of aws/p4d", "host-memory="),
    ],
)  # fmt: skip
def test_a_missing_fact_says_where_to_put_it(plan, settings, says: str, where: str) -> None:
    with pytest.raises(MissingFactError, match=says) as caught:
        job_of(plan, settings)
    assert where in caught.value.hint


def test_what_is_given_goes_before_what_is_planned() -> None:
    settings = plans.training(cpus_per_node=10, host_memory_bytes_per_node=1e9, wall_time_s=61.0)
    job = job_of(plans.plan(plans.choice(time_s=None)), settings)
    assert (job.cpus_per_node, job.memory_bytes, job.saving.wall_time_s) == (9, 900_000_000, 61.0)


def test_two_kinds_of_machine_with_shares_are_not_launched_as_one() -> None:
    share = PlannedShare(device="RTX 4090", num_devices=2, items_per_device=8)
    with pytest.raises(InvalidInputError, match="unequal shares of each batch"):
        job_of(plans.plan(plans.choice(shares=(share, share))), plans.training())


def test_there_is_no_such_choice() -> None:
    with pytest.raises(InvalidInputError, match="no number 3"):
        job_of(plans.plan(), plans.training(choice=2))


@pytest.mark.parametrize("image", ["a b", "x\nRUN rm", "$(id)", "Ubuntu", "a;b"])
def test_an_image_name_is_checked(image: str) -> None:
    with pytest.raises(InvalidInputError, match="not the name of an image"):
        job_of(plans.plan(), plans.training(image=image))


@given(st.text(max_size=80))
def test_a_label_is_safe_everywhere(text: str) -> None:
    try:
        label = label_of(text)
    except InvalidInputError:
        return
    assert label == label.lower()
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in label)
    assert label[0] != "-" != label[-1]
    assert len(f"{label}-261121182610") <= 63


def test_an_unknown_optimizer_is_named() -> None:
    plan = plans.plan(workload=plans.workload(optimizer="frog"))
    with pytest.raises(UnknownNameError, match="no optimizer named `frog`"):
        job_of(plan, plans.training())
