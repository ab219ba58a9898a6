"""The page opens offline, runs nothing that came from outside, and says what failed."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from test_charts import cell, out_of_memory

from paceline.errors import InvalidInputError
from paceline.reporting.charts.basic import throughput_chart
from paceline.reporting.pages.html import page_html, write_pictures
from paceline.reporting.pages.measured import measurements_page
from paceline.reporting.pages.page import Page, Section
from paceline.reporting.pages.planned import plan_page
from paceline.reporting.tables import Column, Table

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")

HOSTILE = "</script><script>alert('owned')</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.ids = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page():
    rows = [cell(1, predicted_s=0.11), cell(2), out_of_memory(4), cell(1, 2)]
    return page_html(measurements_page(tuple(rows)))


def test_nothing_is_fetched(page):
    tags = Tags(page).found
    assert not [t for t in tags if "src" in t[1] or (t[0] == "link" and "href" in t[1])]
    assert not [t for t in tags if t[0] in ("iframe", "object", "embed", "base")]


def specs_of(page):
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return [json.loads(spec) for spec in found]


def test_every_chart_has_its_place_and_its_specification(page):
    places = [a for _, a in Tags(page).found if a.get("class") == "chart"]
    assert len(places) == len(specs_of(page)) >= 4
    assert all(place["aria-label"] for place in places)


def test_a_browser_may_run_the_drawing_script_and_nothing_else(page):
    policy = next(a["content"] for tag, a in Tags(page).found if a.get("http-equiv"))
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_failures_and_predictions_are_said(page):
    assert '<td class="n bad">OOM</td>' in page
    assert "+10 %" in page
    assert "names neither host nor user" in page


def test_text_from_outside_is_shown_and_not_run():
    row = cell(1)
    hostile = replace(
        row.record, workload=HOSTILE, device_name=HOSTILE, stack=HOSTILE, cell=HOSTILE,
        reason=HOSTILE, outcome="failed", sample_unit=HOSTILE,
    )  # fmt: skip
    text = page_html(measurements_page((replace(row, record=hostile),)))
    tags = Tags(text).found
    assert [t for t in tags if t[0] == "img"] == []
    assert sum(t == ("script", {"type": "module"}) for t in tags) == 1
    assert {t[1].get("type") for t in tags if t[0] == "script"} == {"module", "application/json"}
    assert "alert('owned')</script><img" not in text


def test_a_page_without_charts_carries_no_library():
    section = Section(title="t", lines=("one",))
    text = page_html(Page(title="a", subtitle="b", tiles=(), sections=(section,), sources=("c",)))
    assert len(text) < 20_000


def test_numbers_stand_right_and_remarks_below():
    table = Table(
        columns=(Column(title="a"), Column(title="n", is_number=True)),
        rows=(("x", "1"),),
        remarks=("why & how",),
    )
    section = Section(title="t", table=table)
    text = page_html(Page(title="a", subtitle="b", tiles=(), sections=(section,), sources=()))
    assert '<td class="n">1</td>' in text
    assert "why &amp; how" in text


def test_pictures_are_drawn_without_a_browser(tmp_path):
    from paceline.reporting.charts.drawing import write_chart

    chart = throughput_chart([cell(1), cell(2), out_of_memory(4)])
    write_chart(chart, tmp_path / "a.svg")
    write_chart(chart, tmp_path / "a.png")
    assert "OOM ×1" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInputError, match="no picture"):
        write_chart(chart, tmp_path / "a.gif")


def test_every_chart_of_a_sweep_compiles(page):
    import vl_convert

    for spec in specs_of(page):
        assert vl_convert.vegalite_to_vega(spec)["marks"]


def test_a_page_without_a_deadline_shows_no_chance_to_keep_one(plan):
    first = replace(plan.choices[0], chance_time=None)
    assert "in time at" in page_html(plan_page(plan))
    assert "in time at" not in page_html(plan_page(replace(plan, choices=(first,))))


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_each_chart_of_a_page_is_a_picture_of_its_own(plan, tmp_path, ending, start):
    page = plan_page(plan)
    paths = write_pictures(page, tmp_path / "pictures", ending=ending)
    assert len(paths) == len(set(paths)) == sum(len(s.charts) for s in page.sections) > 0
    assert all(path.read_bytes().startswith(start) for path in paths)


def test_pictures_need_a_folder(plan, tmp_path):
    (tmp_path / "pictures").write_text("a file")
    with pytest.raises(InvalidInputError, match="cannot write"):
        write_pictures(plan_page(plan), tmp_path / "pictures", ending="svg")
