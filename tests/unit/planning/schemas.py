"""JSON schemas of files as they are published in ``docs/schema``."""

from typing import Any

from paceline.documents import schema_of


def published_schema(kind: type, name: str) -> dict[str, Any]:
    """The schema of files of a dataclass, under its name."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{name}.schema.json",
        **schema_of(kind),
    }
