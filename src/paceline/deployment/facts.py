"""Facts about launchers and registries, read once from ``data/``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paceline.catalog.naming.launchers import word_of_device
from paceline.errors import MissingFactError
from paceline.shipped import shipped_path, shipped_rows, shipped_toml


def sizing() -> Mapping[str, Any]:
    """How a launch file is sized where the plan leaves it open."""
    return shipped_toml("deployment", "sizing.toml")


def platforms() -> Mapping[str, Any]:
    """What launchers and registries call things."""
    return shipped_toml("deployment", "platforms.toml")


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
    rows = [
        row
        for row in shipped_rows("deployment", "tpu_slices.csv")
        if row["generation"] == generation
    ]
    for row in rows:
        if int(row["num_chips"]) == num_chips:
            return row["topology"], int(row["chips_per_node"])
    known = ", ".join(row["num_chips"] for row in rows) or "none"
    raise MissingFactError(
        f"there is no TPU {generation} slice of {num_chips} chips on record",
        hint=f"plan with one of these counts: {known}",
    )


def engine_servers() -> Mapping[str, Any]:
    """How the servers of inference engines are started."""
    return shipped_toml("deployment", "engine_servers.toml")


def launchers() -> Mapping[str, Any]:
    """What the command of a training job may begin with."""
    return shipped_toml("deployment", "launchers.toml")


def template(name: str) -> str:
    """Text of a template file."""
    return shipped_path("deployment", name).read_text(encoding="utf-8")


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The template with each ``@NAME@`` replaced once; what is put in is never read again."""
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match.group(1)], text)


def container_user() -> int:
    """User and group that our images run as, by number: a cluster cannot check a name."""
    return int(sizing()["container"]["user_id"])
