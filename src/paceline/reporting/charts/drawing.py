"""Charts as SVG, PNG, and as what an offline page needs to draw them itself.

vl-convert carries Vega-Lite in a wheel of its own, so nothing is fetched and no browser is needed.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from paceline.errors import InvalidInputError
from paceline.reporting.charts.basic import Chart
from paceline.writing import whole_file

#: Without `ast` Vega compiles its expressions, which no strict policy of a page allows.
_DRAW_CHARTS = """
const look = {actions: false, renderer: 'svg', ast: true, defaultStyle: false,
  tooltip: {disableDefaultStyle: true}};
window.drawCharts = (root) => {
  for (const place of root.querySelectorAll('.chart:empty')) {
    const spec = place.nextElementSibling;
    if (spec) vegaEmbed(place, JSON.parse(spec.textContent), look).then(({view}) => {
      view.addEventListener('click', (_, item) => {
        const row = item && item.datum && document.getElementById('choice-' + item.datum.rank);
        if (row) { row.open = true; row.scrollIntoView({block: 'nearest'}); }
      });
    });
  }
};
"""


def chart_svg(chart: Chart) -> str:
    """The chart as SVG text."""
    return str(_library().vegalite_to_svg(json.dumps(chart.spec)))


def chart_png(chart: Chart, *, scale: float = 2.0) -> bytes:
    """The chart as a PNG image on white."""
    spec: Mapping[str, object] = {**chart.spec, "background": "white"}
    return bytes(_library().vegalite_to_png(json.dumps(spec), scale=scale))


def drawing_script() -> str:
    """JavaScript that draws charts without a network: ``drawCharts(root)``.

    A chart is an empty element of class ``chart``, followed by one whose text is its specification.

    Raises:
        InvalidInputError: What draws charts is not installed.
    """
    return _bundled(_library())


@cache
def _bundled(library: ModuleType) -> str:
    """Made once, as it takes seconds."""
    return str(library.javascript_bundle(_DRAW_CHARTS))


def write_chart(chart: Chart, path: Path) -> None:
    """Write the chart in the format that the ending of ``path`` names.

    Raises:
        InvalidInputError: Another ending, or a path that cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise InvalidInputError(f"`{path}` is no picture", hint="end it with .svg or .png")
    data = chart_svg(chart).encode() if kind == ".svg" else chart_png(chart)
    with whole_file(path) as draft:
        draft.write_bytes(data)


def check_library() -> None:
    """Refuse to begin what could not be drawn.

    Raises:
        InvalidInputError: What draws charts is not installed.
    """
    _library()


def _library() -> ModuleType:
    try:
        return importlib.import_module("vl_convert")
    except ImportError:
        raise InvalidInputError(
            "pictures need vl-convert-python", hint="`pip install 'paceline[report]'`"
        ) from None
