"""What the tools that write a page of benchmarks/ share: their words, and where the page goes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def page_parser(description: str | None, folder: str) -> argparse.ArgumentParser:
    """A parser of ``[FOLDER] [--cache FOLDER] [--out FILE]``.

    Args:
        description: The tool's own docstring.
        folder: Where what is scored stands unless it is said.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=Path(folder), type=Path)
    parser.add_argument("--cache", type=Path, help="folder of traced models")
    parser.add_argument("--out", type=Path, help="file to write; printed without it")
    return parser


def need(path: Path) -> None:
    """End with a message where published measurements are not at hand."""
    if not path.exists():
        sys.exit(f"no published measurements: {path} is not there; name the folder that has them")


def deliver(text: str, out: Path | None) -> None:
    """Print a page, or write it; it ends with one line break."""
    text = text.rstrip("\n") + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
