"""How sure a scaling curve is: by the same rule as a prediction and a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from refusals import Outcome
from tests.tolerance import ASKED_TOGETHER

from paceline import plan, predict, scale
from paceline.app.requests.mixed_devices import Beside
from paceline.app.requests.scaling import Scaling
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import MissingFactError
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planfile import Interval
from paceline.planning.decisions.curve import ScalingCurve
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.simulation.job import Job

DAY = "2026-11-20"


def scaled(model: str = "resnet50", **options) -> Scaling:
    found = scale(model, as_of=DAY, **options)
    assert isinstance(found, Scaling)
    return found


def width(figure: Interval | None) -> float:
    assert figure is not None
    assert figure.low <= figure.mid <= figure.high
    return figure.high / figure.mid


@pytest.mark.kernels
@pytest.mark.parametrize("model", ["resnet50", "gpt2", "dcgan"])
@pytest.mark.parametrize("device", ["h100", "v100"])
def test_one_device_is_as_sure_as_its_prediction(model: str, device: str) -> None:
    (cell,) = predict(model, device=device, batch=(4,)).cells
    (point,) = scaled(model, device=device, counts=(1,), batch=4).curve.points
    assert cell.step_s is not None
    own = point.step_interval_s
    assert own.mid == pytest.approx(cell.step_s.mid, rel=ASKED_TOGETHER)
    # Bounds of several passes are added up in a prediction, as their spreads are here.
    tolerance = ASKED_TOGETHER if model != "dcgan" else 0.01
    assert (own.low, own.high) == pytest.approx((cell.step_s.low, cell.step_s.high), rel=tolerance)


def test_a_plan_is_as_sure_as_the_curve_of_its_offer() -> None:
    strategy, offer = "dp8", "aws/p4de.24xlarge"
    choice = plan(
        "resnet50", pin=[f"offer={offer}", "batch=256", f"strategy={strategy}"], samples="1M",
        epochs=3000, as_of=DAY, data="ready", global_batch=2048, compiler="eager", precision="bf16",
    ).choices[0]  # fmt: skip
    (point,) = scaled(
        offer=offer, counts=(8,), batch=256, samples="1M", epochs=3000, strategy=strategy
    ).curve.points
    assert width(point.step_interval_s) == pytest.approx(width(choice.step_s), rel=1e-3)
    assert width(point.cost_interval_usd) == pytest.approx(width(choice.cost_usd), rel=0.02)


def test_what_is_exposed_is_known_less_well_and_an_old_price_less_still() -> None:
    points = scaled(device="v100", counts=(1, 8, 64), batch=16).curve.points
    shares = [point.exposed_communication_s / point.step_s for point in points]
    assert shares == sorted(shares)
    assert all(one.log_sigma <= other.log_sigma * (1 + 1e-9) for one, other in pairwise(points))
    for point in points:
        for figure in (point.time_interval_s, point.items_per_s_interval):
            assert width(figure) == pytest.approx(width(point.step_interval_s), rel=1e-9)
        assert width(point.cost_interval_usd) > width(point.time_interval_s)


@pytest.mark.parametrize("strategy", ["dp8", "dp2.tp4", "pp2.dp4/mb8"])
def test_every_strategy_has_an_interval(strategy: str) -> None:
    (point,) = scaled("gpt2", device="h100", counts=(8,), strategy=strategy).curve.points
    assert 1.0 < width(point.step_interval_s) < 2.0


def test_two_kinds_are_as_sure_as_the_one_known_less_well() -> None:
    def both(first: str, second: str) -> float:
        found = scale("resnet50", device=first, counts=(8,), beside=f"{second}:8", as_of=DAY)
        assert isinstance(found, Beside)
        return width(found.step.step_interval_s)

    alone = [
        width(scaled(device=name, counts=(8,)).curve.points[0].step_interval_s)
        for name in ("h100", "a100")
    ]
    assert both("h100", "A100 SXM4 80GB") >= min(alone)
    assert both("h100", "A100 SXM4 80GB") == pytest.approx(both("A100 SXM4 80GB", "h100"), rel=0.05)


def test_the_table_has_intervals_at_every_time_cost_and_memory(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    asked = ("scale", "resnet50", "--device", "h100", "--counts", "1,8", "--as-of", DAY)
    written = run(*asked).out
    rows = [line for line in written.splitlines() if line.strip().startswith(("1 ", "8 "))]
    assert len(rows) == 2
    assert all(row.count("(") == 3 and row.count("–") == 3 for row in rows)
    points = json.loads(run(*asked, "--json").out)["curve"]["points"]
    assert all(point["cost_interval_usd"]["low"] < point["cost_usd"] for point in points)


def test_a_step_that_nobody_knows_has_no_figure() -> None:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    on = Cluster(
        device=find_device(catalog, "h100"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=None,
    )  # fmt: skip
    job = Job(workload=load_workload("resnet50"))

    def curve(counts: tuple[int, ...], widest: float) -> ScalingCurve:
        rule = BatchRule(batch_per_device=256)
        return scaling_curve(job, on, counts=counts, batch=rule, widest_log_sigma=widest)

    first, second = curve((1, 8), math.inf).points
    between = (first.log_sigma + second.log_sigma) / 2
    kept = curve((1, 8), between)
    assert [point.count for point in kept.points] == [1]
    ((count, why),) = kept.rejected
    assert (count, "known only within" in why) == (8, True)
    with pytest.raises(MissingFactError, match="known only within"):
        curve((8,), between)


def test_memory_is_told_as_a_median_between_its_bounds() -> None:
    """The bound that must fit lies between the median and the bound of 95 %."""
    (point,) = scaled("gpt2", device="h100", counts=(8,), batch=8).curve.points
    told = point.memory_interval_bytes
    assert told.low < told.mid < point.memory_bytes < told.high


def test_a_batch_that_sums_microbatches_is_said_with_its_reason_unless_it_is_given() -> None:
    words = "global batch up to"
    cards = {"device": "RTX 4090", "counts": (8,), "seq": 1024}
    summed, given = scaled("gpt2", **cards), scaled("gpt2", batch=8, **cards)
    assert Strategy.parse(summed.curve.points[0].strategy).schedule.num_microbatches > 1
    assert any(words in one for one in summed.assumptions)
    assert not any(words in one for one in given.assumptions)
    assert given.curve.points[0].global_batch == 64
