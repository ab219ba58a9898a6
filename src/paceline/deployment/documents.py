"""YAML and JSON texts from plain data; user text goes in as data and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]


def yaml_text(documents: Sequence[Document], *, comments: Iterable[str] = ()) -> str:
    """One or several YAML documents under a comment block.

    Args:
        documents: Plain data: mappings, lists, strings, numbers, booleans, None.
        comments: Lines of the comment, without the sign; line breaks in them are removed.
    """
    head = "".join(f"# {' '.join(line.split())}".rstrip() + "\n" for line in comments)
    return head + "---\n".join(_yaml(_plain(document)) for document in documents)


def json_text(document: Document) -> str:
    """A JSON document."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"


def without_none(document: Document) -> dict[str, Any]:
    """The mapping without the keys whose value is None."""
    return {key: value for key, value in document.items() if value is not None}


def _yaml(value: Any) -> str:
    """One document; texts of several lines as literal blocks, so that scripts can be read."""
    import yaml

    def write_text(dumper: Any, text: str) -> Any:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    # A safe dumper of our own, so that nobody else's is changed.
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, write_text)
    body = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return str(body)


def _plain(value: Any) -> Any:
    """Copies, so that nothing shared is written as a YAML alias."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
