"""The gallery of the documentation site: every chart that the product draws, as it draws it today.

    python -m documentation.gallery FOLDER

FOLDER holds measurements, as `paceline measure --store FOLDER` keeps them. All else is asked as the
local page asks it, so the pictures are those that a reader gets.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import PIL.Image

from documentation.hooks import PICTURES, ROOT
from paceline.app.api.pages import ModelOptions, page_of
from paceline.app.web.answers import Answers, Facts
from paceline.app.web.query import Question, read_question
from paceline.app.web.uploads import Uploads
from paceline.reporting.charts.basic import Chart
from paceline.reporting.charts.drawing import chart_png
from paceline.reporting.pages.page import Page
from paceline.reporting.pages.planned import plan_page

#: Prices are judged on this day, so that the pictures do not age.
_DAY = "2026-11-20"
_TRAIN = {"model": "resnet50", "deadline": "24h"}
_TRACED = {"model": "gpt2", "tokens": "1B", "device": "a100"}
_SERVED = {"model": "llama-3-8b", "task": "infer", "rps": "20", "ttft": "500ms", "tpot": "50ms"}
_INTRO = """\
# Gallery

The charts of paceline as it draws them today, each under the question that it answers. They stand
in `paceline report`, which also writes them as SVG or PNG, and on the
[local page](how-to/use-the-page.md), where a point tells its reason. `make gallery` writes this
page.
"""


def main() -> int:
    """Draw the pictures and write the page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(Facts(as_of=_DAY), Uploads(Path(folder)))
        parts = [part for asked in _pages(answers, sys.argv[1]) for part in _part(*asked)]
    (ROOT / "docs" / "gallery.md").write_text("\n".join([_INTRO, *parts]), encoding="utf-8")
    return 0


def _pages(answers: Answers, store: str) -> Iterator[tuple[str, str, Page]]:
    """Each chapter's title, its command and its page."""
    train, traced, served = map(read_question, (_TRAIN, _TRACED, _SERVED))
    yield "Which offer, and how many", _typed(train), plan_page(answers.plan(train))
    yield "What another deadline would cost", _typed(train), answers.deadlines(train)
    scaled = "paceline scale resnet50 --device h100 --counts 1,2,4,8,16,32,64,128"
    on_h100 = read_question({**_TRAIN, "device": "h100"})
    yield "Where more devices stop paying", scaled, answers.scaling(on_h100)
    anatomy = "paceline report gpt2 --device a100"
    yield "What a model asks of a device", anatomy, answers.anatomy(traced)
    yield "How long requests wait", _typed(served), answers.load(served)
    measured = "paceline measure mnist-cnn --batch 16,64,256 --devices 1,2"
    yield "What this machine really does", measured, page_of(store, ModelOptions())


def _typed(question: Question) -> str:
    return question.command(question.model)


def _part(title: str, command: str, page: Page) -> Iterator[str]:
    yield f"## {title}\n\n```text\n{command}\n```\n"
    for chart in (chart for section in page.sections for chart in section.charts):
        yield f"**{chart.title}.** {chart.caption}\n"
        yield f"![{chart.title}](images/gallery/{_drawn(chart).name})\n"


def _drawn(chart: Chart) -> Path:
    """Draw a chart in few colours, which keeps pictures small."""
    name = "-".join(re.findall(r"\w+", chart.title.lower()))[:60]
    path = PICTURES / f"{name}.png"
    picture = PIL.Image.open(io.BytesIO(chart_png(chart, scale=1.5))).convert("RGB")
    picture.quantize(96).save(path, optimize=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
