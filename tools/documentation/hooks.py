"""What MkDocs is told beyond `mkdocs.yml`: pages beside `docs`, the order of pages, equations.

Pages of `docs` link to `benchmarks` and `examples`, as a reader of the repository follows them.
Both folders become parts of the site, the README its first page, and links are turned to where
things lie there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: Of the gallery.
PICTURES = ROOT / "docs" / "images" / "gallery"
#: Parts of the navigation by folder, in order; pages follow one another by their titles.
_PARTS: Mapping[str, str] = {
    "": "Start", "how-to": "How to", "explanation": "Explanation", "reference": "Reference",
    "benchmarks": "Measured", "decisions": "Decisions", "examples": "Examples", "tools": "Tools",
}  # fmt: skip
#: What lies beside `docs` and is shown or linked.
BESIDE = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tools/README.md", "docs/index.md",
    "benchmarks/**/*.md", "benchmarks/**/*.csv", "examples/**/*.*",
)  # fmt: skip
#: The README is the first page; what was the first page of `docs` lists all others.
_MOVED: Mapping[str, str] = {"README.md": "index.md", "docs/index.md": "pages.md"}
_FIRST = ("index.md", "tutorial.md", "gallery.md")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_TEX = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add what lies beside `docs`."""
    from mkdocs.structure.files import File

    files.remove(files.get_file_from_path("index.md"))
    for path in (path for pattern in BESIDE for path in sorted(ROOT.glob(pattern))):
        own = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, in_site(own), content=path.read_bytes()))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Order pages by part and title, not by the names of their files."""
    del config, files
    parts: dict[str, list[Any]] = {folder: [] for folder in _PARTS}
    for page in nav.pages:
        parts[page.file.src_uri.rpartition("/")[0].partition("/")[0]].append(page)
    nav.items = [_part(title, parts[folder]) for folder, title in _PARTS.items()]
    nav.pages = [page for part in nav.items for page in part.children]
    for before, after in pairwise(nav.pages):
        before.next_page, after.previous_page = after, before
    nav.pages[0].previous_page = nav.pages[-1].next_page = None
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links that leave `docs` to where the site has what they name."""
    del config, files
    own = _in_repository(page.file.src_uri)
    lines, is_fenced = [], False
    for line in markdown.splitlines():
        is_fenced ^= line.lstrip().startswith(("```", "~~~"))
        lines.append(line if is_fenced else _LINK.sub(lambda found: _turned(found, own), line))
    return "\n".join(lines)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Write equations as MathML, which needs no script."""
    del page, config, files
    return _TEX.sub(lambda found: _math(found[2]), html)


def _part(title: str, pages: Iterable[Any]) -> Any:
    from mkdocs.structure.nav import Section

    ordered = sorted(pages, key=_place)
    section = Section(title, ordered)
    for page in ordered:
        page.parent = section
    return section


def _place(page: Any) -> tuple[int, str]:
    path = page.file.src_uri
    number = _FIRST.index(path) if path in _FIRST else len(_FIRST)
    found = re.search(r"^# (.+)$", page.file.content_string, re.MULTILINE)
    is_list = posixpath.basename(path) == "README.md"
    return (number, "" if is_list or found is None else found[1].lower())


def _math(tex: str) -> str:
    from latex2mathml.converter import convert

    text = unescape(tex.strip())
    shown = "block" if text.startswith(r"\[") else "inline"
    return str(convert(text[2:-2].strip(), display=shown))


def _turned(found: re.Match[str], own: str) -> str:
    target, hash_sign, anchor = found[2].partition("#")
    if not target or ":" in target:
        return found[0]
    named = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
    if (ROOT / named).is_dir():
        named = f"{named}/README.md" if (ROOT / named / "README.md").is_file() else "docs/index.md"
    start = posixpath.dirname(in_site(own)) or "."
    return f"{found[1]}{posixpath.relpath(in_site(named), start)}{hash_sign}{anchor}{found[3]}"


def in_site(path: str) -> str:
    """Where a file of the repository lies in the site."""
    return _MOVED.get(path, path.removeprefix("docs/"))


def _in_repository(path: str) -> str:
    """Where a page of the site lies in the repository."""
    moved = {site: own for own, site in _MOVED.items()}
    beside = (ROOT / path).exists()
    return moved.get(path, path if beside else f"docs/{path}")
