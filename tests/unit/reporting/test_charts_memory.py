"""The picture of memory over a pass, and the page that it stands on."""

import pytest

from paceline.app.api.pages import ModelOptions, page_of
from paceline.model.graph.costs import Configuration
from paceline.model.live_bytes import memory_course
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.reporting.charts.memory import course_chart
from paceline.reporting.pages.html import page_html


@pytest.fixture(scope="module")
def course():
    graph = load_workload("resnet50").passes[0].graph
    return memory_course(graph, lower(graph, Configuration()), batch=32, seq=1)


def values(chart, layer):
    return chart.spec["layer"][layer]["data"]["values"]


def test_the_areas_stacked_are_the_live_bytes_at_every_part(course):
    total = {}
    for row in values(course_chart(course), 0):
        total[row["op"]] = total.get(row["op"], 0.0) + row["GB"] * 1e9
    drawn = [total[start] for start in course.starts]
    assert drawn == pytest.approx(course.moments_bytes, rel=0.01)


def test_phases_and_peak_are_marked(course):
    chart = course_chart(course)
    phases = {row["phase"]: row["op"] for row in values(chart, 1)}
    assert phases["forward"] == 1 < phases["backward"] < course.num_ops
    assert values(chart, 3) == [{"op": course.peak_op, "GB": course.peak_bytes / 1e9}]
    assert "backward" in chart.caption


def test_a_capacity_is_drawn_only_within_reach(course):
    near = course_chart(course, capacity_bytes=1.5 * course.peak_bytes)
    far = course_chart(course, capacity_bytes=9 * course.peak_bytes)
    assert len(near.spec["layer"]) == len(far.spec["layer"]) + 1 == 5


def test_the_page_of_a_model_shows_the_course_and_what_would_lower_it():
    pytest.importorskip("vl_convert")
    subject = page_of("resnet50", ModelOptions(device="a100"))
    # What draws it in a browser takes seconds to make, and is tested with the pages of plans.
    page = page_html(subject, script="draw()")
    assert "Memory over the pass" in page
    assert "To need less memory" in page
    assert "checkpointing=block" in page
