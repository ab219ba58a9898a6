"""Draw ten screens at 80 and 100 columns, light and dark, into ``docs/images/screens``.

``PYTHONPATH=src:tools python -m screens`` runs each command on a pseudo-terminal, so that colours
are those a person sees, and writes ``docs/reference/screens.md`` beside the pictures.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from html import escape, unescape
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "docs" / "images" / "screens"
_PAGE = _ROOT / "docs" / "reference" / "screens.md"
_WIDTHS = (80, 100)
_PURCHASES = _ROOT / "examples" / "scenarios" / "purchases.toml"
#: Name of a screen, and what is asked.
SCREENS: Mapping[str, str] = {
    "plan-cnn": "plan resnet50 --deadline 24h",
    "plan-llm": "plan llama-3-8b --tokens 10B --deadline 14d",
    "plan-lora": "plan llama-3-8b --tokens 10M --seq 2048 --rewrite lora_rank=16",
    "plan-service": "plan llama-3-8b --task infer --rps 5 --tpot 50ms",
    "predict": "predict resnet50 --device a100,t4 --batch 32,1024",
    "scale": "scale bert-large --device a100 --counts 1,2,8,64",
    "own": f"own {_PURCHASES} --name lab-five-years",
    "bill": "bill aws/p4d.24xlarge 36h --term spot",
    "stack": "stack resolve --gpu v100 --driver 550",
    "measure": "measure mnist-cnn --batch 16,400000 --memory 2GB --seconds 0.5",
}
#: Paper, ink, label and warning of a terminal.
_THEMES = {
    "light": ("#ffffff", "#1f2328", "#0550ae", "#b3261e"),
    "dark": ("#0d1117", "#e6edf3", "#79c0ff", "#ff7b72"),
}
_CHARACTER, _LINE, _MARGIN = 8.4, 18, 14
_SGR = re.compile(r"\x1b\[(\d*)m")
_OTHER_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]")


def main() -> int:
    """Draw all, or those that are named."""
    names = sys.argv[1:] or list(SCREENS)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        for width in _WIDTHS:
            text = screen(SCREENS[name], width)
            for theme in _THEMES:
                _path(name, width, theme).write_text(picture(_typed(name), text, width, theme))
    _PAGE.write_text(page({name: _head(name) for name in SCREENS}), encoding="utf-8")
    return 0


def _path(name: str, width: int, theme: str) -> Path:
    return _FOLDER / f"{name}-{width}-{theme}.svg"


def _head(name: str) -> str:
    """The first sentence of a picture: what is bold."""
    drawn = _path(name, 100, "light").read_text(encoding="utf-8")
    return unescape(" ".join(re.findall(r'<tspan font-weight="bold">([^<]*)', drawn)))


def screen(command: str, width: int) -> str:
    """What a command prints on a terminal of this width, without what it draws over again."""
    pid, terminal = pty.fork()
    if pid == 0:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            own = {"PYTHONPATH": str(_ROOT / "src"), "COLUMNS": str(width), "TERM": "xterm"}
            kept = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
            kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
            words = [sys.executable, "-m", "paceline", *shlex.split(command)]
            os.execve(sys.executable, words, kept | own)
    written = b"".join(_chunks(terminal))
    os.close(terminal)
    os.waitpid(pid, 0)
    lines = written.decode().replace("\r\n", "\n").split("\n")
    kept_lines = [line.rpartition("\r")[2] for line in lines]
    return _OTHER_CONTROL.sub("", "\n".join(kept_lines)).strip("\n")


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # The other end is closed.
            return
        if not chunk:
            return
        yield chunk


def picture(command: str, text: str, width: int, theme: str) -> str:
    """A terminal with a command and its answer as SVG."""
    paper, ink, label, warning = _THEMES[theme]
    lines = [f"$ paceline {command}", "", *text.split("\n")]
    styles = {
        "": "", "0": "", "1": ' font-weight="bold"', "34": f' fill="{label}"',
        "31": f' fill="{warning}"',
    }  # fmt: skip
    rows, style = [], ""
    for number, line in enumerate(lines):
        spans = []
        for index, part in enumerate(_SGR.split(line)):
            if index % 2:
                style = styles.get(part, "")
            elif part:
                spans.append(f"<tspan{style}>{escape(part)}</tspan>")
        y = _MARGIN + (number + 1) * _LINE
        rows.append(f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{"".join(spans)}</text>')
    wide = round(2 * _MARGIN + width * _CHARACTER)
    high = 2 * _MARGIN + (len(lines) + 1) * _LINE
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f"font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" "
        f'font-size="14" fill="{ink}">\n'
        f'<rect width="{wide}" height="{high}" rx="6" fill="{paper}"/>\n{body}\n</svg>\n'
    )


def page(heads: Mapping[str, str]) -> str:
    """All pictures on one page, each under its first sentence."""
    blocks = [
        "# Screens",
        "Written by `make screens`, which runs each command on a terminal of 80 and of 100 "
        "columns. The first sentence is meant to be enough.",
    ]
    for name, head in heads.items():
        blocks += [f"## {head}", f"`paceline {_typed(name)}`"]
        blocks += [
            f"![{name}, {width} columns, {theme}](../images/screens/{name}-{width}-{theme}.svg)"
            for width, theme in ((100, "light"), (100, "dark"), (80, "light"), (80, "dark"))
        ]
    return "\n\n".join(blocks) + "\n"


def _typed(name: str) -> str:
    return SCREENS[name].replace(str(_PURCHASES), _PURCHASES.name)


if __name__ == "__main__":
    raise SystemExit(main())
