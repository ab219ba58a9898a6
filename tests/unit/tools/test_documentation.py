from __future__ import annotations

import posixpath
import re
from pathlib import Path

from documentation import hooks

_ROOT = Path(__file__).parents[3]
_BESIDE = {p.relative_to(_ROOT).as_posix() for one in hooks.BESIDE for p in _ROOT.glob(one)}
_DOCS = {p.relative_to(_ROOT).as_posix() for p in (_ROOT / "docs").rglob("*.*")}
_PAGES = sorted(path for path in _BESIDE | _DOCS if path.endswith(".md"))


class _Page:
    def __init__(self, path: str) -> None:
        self.file = self
        self.src_uri = path


def test_links_of_a_page_lead_to_files_of_the_site() -> None:
    there = {hooks.in_site(path) for path in _BESIDE | _DOCS}
    for own in _PAGES:
        page, shown = (_ROOT / own).read_text("utf-8"), _Page(hooks.in_site(own))
        text = re.sub(r"```.*?```", "", hooks.on_page_markdown(page, shown, 0, 0), flags=re.S)
        named = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
        folder = posixpath.dirname(hooks.in_site(own))
        paths = {posixpath.normpath(posixpath.join(folder, one)) for one in named}
        assert paths <= there, own


def test_two_files_never_become_one_of_the_site() -> None:
    files = _BESIDE | _DOCS
    assert len({hooks.in_site(path) for path in files}) == len(files)


def test_the_gallery_shows_every_picture_drawn_for_it_and_each_is_small() -> None:
    shown = re.findall(r"\]\((images/gallery/[^)]+)\)", (_ROOT / "docs/gallery.md").read_text())
    drawn = [p.relative_to(_ROOT / "docs").as_posix() for p in hooks.PICTURES.glob("*.png")]
    assert sorted(shown) == sorted(drawn)
    pictures = [p for p in (_ROOT / "docs/images").rglob("*.*") if p.is_file()]
    assert [p.name for p in pictures if p.stat().st_size > 200_000] == []
