"""Compose files against the Compose specification's JSON schema, durations and sizes included."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import jsonschema

FOLDER = Path(find_spec("compose").submodule_search_locations[0]) / "config"
SCHEMA = json.loads((FOLDER / "compose_spec.json").read_text())
DURATION = re.compile(r"(\d+(\.\d+)?(us|ms|s|m|h))+$")
FORMATS = jsonschema.FormatChecker()


@FORMATS.checks("duration")
def is_duration(value):
    """Durations as Compose writes them: ``1m30s``; other types are left to the schema."""
    return not isinstance(value, str) or bool(DURATION.match(value))


CHECK = jsonschema.Draft7Validator(SCHEMA, format_checker=FORMATS)

for line in sys.stdin:
    target, documents = json.loads(line)
    # The package's schema is older than the project name, which Compose has had since version 2.
    names = [d.pop("name", "") for d in documents]
    complaints = ["the name is no text" for name in names if not isinstance(name, str)]
    complaints += [
        f"{e.json_path} {e.message}"[:200] for d in documents for e in CHECK.iter_errors(d)
    ]
    complaints += [] if documents[0].get("services") else ["no services"]
    print(json.dumps(complaints), flush=True)
