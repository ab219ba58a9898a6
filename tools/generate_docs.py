"""Write the generated pages of docs/reference; a test fails if that would change a byte.

The command-line reference comes from the help of every verb, the API reference from signatures and
docstrings, the catalogue pages from the data files.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import click
from scoreboard.quoted import scoreboard

import paceline
from paceline.app.command_line import HELP_WIDTH
from paceline.app.main import build_commands
from paceline.app.main import main as run_verb
from paceline.catalog.tables import shipped_catalog
from paceline.reporting.screens.catalogs import device_table, offer_table
from paceline.reporting.tables import markdown_table

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES_WITH_OUTPUT = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")

#: A comment with a command, and the fenced block that shows its output.
_BLOCK = re.compile(r"(<!-- run: (paceline[^\n]*?) -->\n```text\n).*?\n```", re.DOTALL)
#: Prices are judged on this day in the examples, so that they do not age.
_DAY = "--as-of 2026-11-20"


def pages() -> Mapping[str, str]:
    """Text of every generated page by its file name."""
    return {
        "cli.md": cli_page(),
        "api.md": api_page(),
        "devices.md": devices_page(),
        "offers.md": offers_page(),
    }


def cli_page() -> str:
    """The help of every command."""
    sections = [
        "# Command line",
        "Written by `make docs` from the program itself. Exit status: 0 done, 2 a mistake in what "
        "was asked, 3 nothing of it fits, 4 no offer, 5 a regression, 6 software that "
        "contradicts itself, 130 interrupted.",
    ]
    for program, text in help_texts(build_commands(), "paceline"):
        sections += [f"## {program}", f"```text\n{text}\n```"]
    return "\n\n".join(sections) + "\n"


def help_texts(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Every command with its help, those with verbs of their own first."""
    yield path, help_of(command, path)
    for name, below in getattr(command, "commands", {}).items():
        yield from help_texts(below, f"{path} {name}")


def help_of(command: click.Command, path: str) -> str:
    """The help of a command at a fixed width, the same on every terminal."""
    parent, _, name = path.rpartition(" ")
    above = click.Context(click.Group(parent), info_name=parent) if parent else None
    context = click.Context(
        command,
        info_name=name,
        parent=above,
        terminal_width=HELP_WIDTH,
        help_option_names=["-h", "--help"],
        show_default=True,
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def api_page() -> str:
    """Signature and docstring of everything public."""
    sections = ["# Python API", "Written by `make docs` from signatures and docstrings."]
    names = (name for name in paceline.__all__ if not name.startswith("_"))
    for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
        value = getattr(import_module(paceline.HOMES[name]), name)
        sections += [f"## paceline.{name}", f"```python\n{_heading(name, value)}\n```"]
        sections.append(f"```text\n{inspect.getdoc(value)}\n```")
    return "\n\n".join(sections) + "\n"


def _heading(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return f"class {name}({value.__mro__[1].__name__})"
    signature = inspect.signature(value)
    parameters = "".join(f"    {parameter},\n" for parameter in _with_star(signature))
    listed = f"\n{parameters}" if parameters else ""
    return f"def {name}({listed}) -> {signature.return_annotation}"


def _with_star(signature: inspect.Signature) -> Iterator[object]:
    """Parameters with the star that makes the rest keywords, where none takes further words."""
    is_starred = False
    for parameter in signature.parameters.values():
        is_starred = is_starred or parameter.kind is parameter.VAR_POSITIONAL
        if parameter.kind is parameter.KEYWORD_ONLY and not is_starred:
            is_starred = True
            yield "*"
        yield parameter


def devices_page() -> str:
    """Every device."""
    catalog = shipped_catalog()
    table = markdown_table(device_table(catalog.devices))
    return (
        f"# Devices\n\nWritten by `make docs` from the catalogue of {catalog.version}. Rates are "
        "dense. A dash is a fact that is not known. `paceline devices NAME` shows one with its "
        f"sources.\n\n{table}\n"
    )


def offers_page() -> str:
    """Every offer."""
    catalog = shipped_catalog()
    newest = max(offer.priced_on for offer in catalog.offers if offer.priced_on)
    table = markdown_table(offer_table(catalog.offers, newest))
    return (
        f"# Offers\n\nWritten by `make docs` from the catalogue of {catalog.version}. Prices are "
        "US dollars per hour and machine, on demand and spot; only those seen within a year of "
        "the day of planning are ranked. The last column says what else keeps an offer from being "
        f"ranked, as of {newest}, the day of the newest price.\n\n{table}\n"
    )


def with_fresh_outputs(text: str) -> str:
    """A page in which every block below ``<!-- run: … -->`` holds what that command prints."""
    return _BLOCK.sub(lambda block: f"{block[1]}{output_of(block[2])}\n```", text)


def with_fresh_scoreboard(text: str) -> str:
    """A page for newcomers whose scoreboard quotes the pages of benchmarks/ as they are."""
    return _filled(text, "scoreboard", f"{scoreboard(place='benchmarks/', is_short=True)}\n")


def with_whole_scoreboard(text: str) -> str:
    """The page of benchmarks/ that quotes all others."""
    return _filled(text, "scoreboard", f"{scoreboard()}\n")


def _filled(text: str, name: str, content: str) -> str:
    """The text with ``content`` between ``<!-- name -->`` and the next ``<!-- end -->``."""
    section = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return section.sub(lambda found: f"{found[1]}{content}{found[2]}", text, count=1)


def commands_shown(text: str) -> list[str]:
    """Commands whose output a page shows."""
    return [block[2] for block in _BLOCK.finditer(text)]


def output_of(command: str) -> str:
    """The command as a reader would type it, and what it prints."""
    program, *words = shlex.split(f"{command} {_DAY if ' plan ' in command else ''}")
    assert program == "paceline", command
    out, talk = io.StringIO(), io.StringIO()
    wide = mock.patch.dict(os.environ, COLUMNS="100")
    with wide, chdir(tempfile.gettempdir()), redirect_stdout(out), redirect_stderr(talk):
        status = run_verb(words)
    return f"$ {command}\n{out.getvalue()}{talk.getvalue() if status else ''}".rstrip()


def with_fresh_lists(index: str) -> str:
    """The index with one link per how-to, explanation and decision, by their titles."""
    for folder in ("how-to", "explanation", "decisions"):
        links = "".join(
            f"- [{_title(page)}]({folder}/{page.name})\n"
            for page in sorted((ROOT / "docs" / folder).glob("*.md"))
        )
        index = _filled(index, folder, links)
    return index


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def main() -> int:
    """Write every page."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for page in PAGES_WITH_OUTPUT:
        text = with_fresh_scoreboard(page.read_text(encoding="utf-8"))
        page.write_text(with_fresh_outputs(text), encoding="utf-8")
    board = ROOT / "benchmarks" / "README.md"
    board.write_text(with_whole_scoreboard(board.read_text(encoding="utf-8")), encoding="utf-8")
    index = ROOT / "docs" / "index.md"
    index.write_text(with_fresh_lists(index.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(f"{REFERENCE.name}/{name}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
