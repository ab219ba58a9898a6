"""Facts about launchers and registries, read once from ``data/``."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from paceline.catalog.naming.launchers import word_of_device
from paceline.errors import MissingFactError

_DATA = Path(__file__).parent / "data"


@cache
def sizing() -> dict[str, Any]:
    """How a launch file is sized where the plan leaves it open."""
    return _toml("sizing.toml")


@cache
def platforms() -> dict[str, Any]:
    """What launchers and registries call things."""
    return _toml("platforms.toml")


def api_version(kind: str) -> str:
    """The API version of a kind of object."""
    return str(platforms()["api"][kind])


def accelerator(device: str, column: str) -> str:
    """A provider's own word for ``device``.

    Raises:
        MissingFactError: The provider is not known to have it.
    """
    if word := word_of_device(device, column):
        return word
    where = column.removesuffix("_accelerator")
    raise MissingFactError(
        f"{where} has no name for {device} in the tables", hint="give it with `--set accelerator=…`"
    )


def tpu_slice(generation: str, num_chips: int) -> tuple[str, int]:
    """Topology of a slice and chips per node.

    Raises:
        MissingFactError: No slice of that many chips exists.
    """
    rows = [row for row in _rows("tpu_slices.csv") if row["generation"] == generation]
    for row in rows:
        if int(row["num_chips"]) == num_chips:
            return row["topology"], int(row["chips_per_node"])
    known = ", ".join(row["num_chips"] for row in rows) or "none"
    raise MissingFactError(
        f"there is no TPU {generation} slice of {num_chips} chips on record",
        hint=f"plan with one of these counts: {known}",
    )


@cache
def engine_servers() -> dict[str, Any]:
    """How the servers of inference engines are started."""
    return _toml("engine_servers.toml")


def launchers() -> dict[str, Any]:
    """What the command of a training job may begin with."""
    return _toml("launchers.toml")


def template(name: str) -> str:
    """Text of a template file."""
    return (_DATA / name).read_text(encoding="utf-8")


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The template with each ``@NAME@`` replaced once; what is put in is never read again."""
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match.group(1)], text)


def container_user() -> int:
    """User and group that our images run as, by number: a cluster cannot check a name."""
    return int(sizing()["container"]["user_id"])


def _toml(name: str) -> dict[str, Any]:
    with (_DATA / name).open("rb") as file:
        return tomllib.load(file)


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    with (_DATA / name).open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))
