"""The plan file on disk: YAML written, read back to the same bits, and its JSON schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.documents import parse_mapping, validate
from paceline.errors import InvalidInputError
from paceline.planfile import SCHEMA_VERSION, PlanFile
from paceline.reading import read_text
from paceline.writing import write_whole

_HEADER = (
    "# A plan of paceline. Units stand in the key names. Read by `paceline deploy` and `report`.\n"
    "# It is whole where its last line is `...`.\n"
)


#: How YAML ends a document, and a plan, so that half of one is known.
_END = "..."


def write_plan(plan: PlanFile, path: str | Path) -> None:
    """Write a plan as YAML.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    write_whole(Path(path), dump_plan(plan))


def read_plan(path: str | Path) -> PlanFile:
    """Read a plan, which may come from anybody: plain data only, every key known.

    Raises:
        InvalidInputError: Not a plan of this version, or hostile.
    """
    return load_plan(read_text(Path(path), what="plan file"))


def dump_plan(plan: PlanFile) -> str:
    """A plan as YAML text."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    body = yaml.dump(
        _plain(asdict(plan)), Dumper=dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return f"{_HEADER}{body}{_END}\n"


def load_plan(text: str) -> PlanFile:
    """A plan from YAML text; see `read_plan`."""
    if f"last line is `{_END}`" in text and text.rstrip().rpartition("\n")[2] != _END:
        raise InvalidInputError(
            "the plan file ends in the middle", hint="write it again with `paceline plan MODEL`"
        )
    value = parse_mapping(text, what="plan file", hint="write one with `paceline plan MODEL`")
    version = value.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidInputError(
            f"the plan file has schema version {version}, this program reads {SCHEMA_VERSION}",
            hint="write it again with `paceline plan MODEL`",
        )
    return validate(PlanFile, value, what="plan file")


def _plain(value: Any) -> Any:
    """Tuples as lists and numbers of any library as Python's own."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
