"""Pages cannot drift from the program."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import generate_docs
import pytest
from test_hints import unknown_words

import paceline
from paceline.app.main import VERBS, build_commands
from paceline.shipped import shipped_rows

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("docs", "benchmarks", "tools", "examples")
_PAGES = sorted([*_ROOT.glob("*.md"), *(p for f in _FOLDERS for p in (_ROOT / f).rglob("*.md"))])
#: Decisions are superseded and never edited: they name the files of their day.
_CURRENT = [page for page in _PAGES if page.parent.name != "decisions"]


@pytest.mark.parametrize("name", ["cli.md", "api.md", "devices.md", "offers.md"])
def test_generating_a_page_again_changes_nothing(name: str) -> None:
    committed = (_ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert generate_docs.pages()[name] == committed, "run `make docs`"


def test_the_index_lists_every_how_to_explanation_and_decision() -> None:
    index = (_ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert generate_docs.with_fresh_lists(index) == index, "run `make docs`"


def test_the_scoreboard_of_the_readme_quotes_the_benchmarks_as_they_are() -> None:
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert generate_docs.with_fresh_scoreboard(readme) == readme, "run `make docs`"


def test_the_whole_scoreboard_quotes_the_benchmarks_as_they_are() -> None:
    page = (_ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert generate_docs.with_whole_scoreboard(page) == page, "run `make docs`"


def test_decisions_are_titled_by_their_number() -> None:
    for page in (_ROOT / "docs" / "decisions").glob("*.md"):
        assert page.read_text(encoding="utf-8").startswith(f"# {page.name[:4]} · "), page.name


def test_every_verb_is_in_the_readme_or_the_tutorial() -> None:
    told = (_ROOT / "README.md").read_text() + (_ROOT / "docs" / "tutorial.md").read_text()
    assert [verb for verb in VERBS if f"paceline {verb}" not in told] == []


def test_every_verb_is_in_the_changes() -> None:
    told = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [
        verb for verb in VERBS if f"`{verb}`" not in told and f"paceline {verb}`" not in told
    ] == []


def test_lists_are_said_to_have_commas_in_one_way() -> None:
    for name in ("cli.md", "api.md"):
        page = " ".join(generate_docs.pages()[name].split())
        ways = re.findall(r"(\S+ \S+) commas?\b", page)
        assert set(ways) == {"several with"}, name


def test_the_page_of_the_catalogue_counts_the_rows_of_its_tables() -> None:
    page = (_ROOT / "docs" / "explanation" / "catalogue.md").read_text(encoding="utf-8")
    told = {name: int(count) for name, count in re.findall(r"\| `(\w+\.csv)` \| (\d+) \|", page)}
    assert told
    assert told == {name: len(shipped_rows("catalog", name)) for name in told}


def test_every_export_is_in_the_api_reference() -> None:
    page = (_ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    public = [name for name in paceline.__all__ if not name.startswith("_")]
    assert [name for name in public if f"## paceline.{name}\n" not in page] == []


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
    assert "#SBATCH" in capsys.readouterr().out


def test_signatures_of_the_api_reference_are_python() -> None:
    page = (_ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    signatures = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    assert len(signatures) > 10
    for signature in signatures:
        ast.parse(f"{signature}: ...")


def test_commands_on_a_page_have_verbs_and_options_that_exist() -> None:
    commands = build_commands()
    for page in _PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```(?:sh|text)\n(.*?)```", text, re.DOTALL))
        shown = re.findall(r"^(?:\$ )?paceline ([a-z].*?)(?:\s+#.*)?$", code, re.MULTILINE)
        assert [command for command in shown if unknown_words(commands, command)] == [], page


def test_links_between_pages_lead_somewhere() -> None:
    for page in _PAGES:
        targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        assert [target for target in targets if not (page.parent / target).exists()] == [], page


def test_files_modules_and_targets_that_a_page_names_exist() -> None:
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    for page in _CURRENT:
        parts = re.findall(
            r"```\w*\n(.*?)```|`([^`\n]+)`", page.read_text(encoding="utf-8"), re.DOTALL
        )
        code = "\n".join(map("".join, parts))
        files = re.findall(r"^(?:[a-z_]+/)+[a-z_]+\.(?:py|csv|toml|md)$", code, re.MULTILINE)
        assert [name for name in files if not _is_there(name)] == [], page
        modules = re.findall(r"python -m ([a-z_.]+)", code)
        assert [name for name in modules if not _is_tool(name)] == [], page
        targets = re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)
        assert [name for name in targets if f"\n{name}:" not in makefile] == [], page


def _is_there(name: str) -> bool:
    return any(f"/{path}".endswith(f"/{name}") for path in _files())


@cache
def _files() -> tuple[str, ...]:
    """Files of the repository; a page names one from its room or from the root."""
    folders = ("src", "tests", *_FOLDERS)
    found = (path for folder in folders for path in (_ROOT / folder).rglob("*.*"))
    return tuple(path.relative_to(_ROOT).as_posix() for path in found)


def _is_tool(name: str) -> bool:
    """Whether a script of tools/, or what any environment for development has."""
    path = _ROOT / "tools" / name.replace(".", "/")
    ours = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    return ours or name in ("venv", "pip", "pytest", "ruff", "mypy", "http.server")


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_shown_outputs_begin_with_what_the_command_still_prints(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    assert generate_docs.commands_shown(text)
    for command in generate_docs.commands_shown(text):
        shown = re.search(re.escape(f"$ {command}\n") + r"(.*)", text)
        assert shown is not None, "run `make docs`"
        fresh = generate_docs.output_of(command).splitlines()[1]
        assert fresh.split()[:2] == shown[1].split()[:2], "run `make docs`"
