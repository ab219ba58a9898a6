"""A page as one HTML file that opens offline, and as parts of a page that a browser asks for.

The templates in ``data/templates`` are all the HTML there is. They escape whatever they are given,
so a hostile model name is shown and not run. The file carries its style, the specifications of its
charts and the script that draws them, and a policy that lets a browser run that script alone.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import InvalidInputError
from paceline.reporting.charts.drawing import check_library, drawing_script, write_chart
from paceline.reporting.pages.page import Page
from paceline.reporting.screens.measurements import FAILED_WORDS
from paceline.shipped import shipped_path
from paceline.writing import make_folder

if TYPE_CHECKING:
    from jinja2 import Environment

_REPORT = "report.html.j2"
_AT_ONCE = "\nwindow.drawCharts(document);\n"


def page_html(page: Page, *, script: str | None = None) -> str:
    """The page as one file's text.

    Args:
        page: Any page.
        script: What draws its charts, where it has been made already.

    Raises:
        InvalidInputError: What writes pages or draws charts is not installed.
    """
    has_charts = any(section.charts for section in page.sections)
    style = stylesheet()
    drawn = _one_element((script or drawing_script()) + _AT_ONCE) if has_charts else ""
    return render(_REPORT, page=page, style=style, script=drawn, policy=_policy(style, drawn))


def render(template: str, **values: object) -> str:
    """What a template of ``data/templates`` says of the values, escaped.

    Raises:
        InvalidInputError: What fills templates is not installed.
    """
    return _environment().get_template(template).render(values)


def check_installed() -> None:
    """Refuse to begin what could not be written.

    Raises:
        InvalidInputError: What fills templates or draws charts is not installed.
    """
    _environment()
    check_library()


def stylesheet() -> str:
    """The one style of reports and of the local page."""
    return shipped_path("reporting", "page.css").read_text("utf-8")


def write_pictures(page: Page, folder: Path, *, ending: str) -> tuple[Path, ...]:
    """Write every chart of the page as a picture of its own, numbered in order.

    Args:
        page: Any page.
        folder: Made if it is not there.
        ending: ``svg`` or ``png``.

    Raises:
        InvalidInputError: The folder or a picture cannot be written.
    """
    make_folder(folder)
    drawn = [chart for section in page.sections for chart in section.charts]
    paths = []
    for number, chart in enumerate(drawn, start=1):
        words = "-".join(re.findall(r"\w+", chart.title.lower()))
        paths.append(folder / f"{number:02}-{words}.{ending}")
        write_chart(chart, paths[-1])
    return tuple(paths)


@cache
def _environment() -> Environment:
    try:
        jinja2 = importlib.import_module("jinja2")
    except ImportError:
        raise InvalidInputError(
            "pages need Jinja2", hint="`pip install 'paceline[report]'`"
        ) from None
    made: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paceline.reporting", "data/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["failed_words"] = FAILED_WORDS
    made.filters["unbroken"] = _unbroken
    return made


def _unbroken(figure: str) -> str:
    """A figure whose ranges do not break at their dash (U+2060 joins words)."""
    return figure.replace("–", "\u2060–\u2060")


def _one_element(script: str) -> str:
    """A script that cannot end the element it stands in."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(style: str, script: str) -> str:
    """What a browser may do with the file: apply this style, run this script, and nothing else.

    Vega sets a few styles of single elements, which no hash covers and no drawing needs.
    """
    scripts = _hash_of(script) if script else "'none'"
    return f"default-src 'none'; style-src {_hash_of(style)}; script-src {scripts}"


def _hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
