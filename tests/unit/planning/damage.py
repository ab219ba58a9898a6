"""Files with a few characters too many, for laws about readers."""

from __future__ import annotations

from pathlib import Path


def with_text_inside(whole: Path, position: int, text: str, folder: Path) -> Path:
    """A copy of a file with ``text`` at ``position``; text that is no Unicode stays as it is."""
    content = whole.read_text(encoding="utf-8")
    copy = folder / whole.name
    damaged = content[:position] + text + content[position:]
    copy.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    return copy
