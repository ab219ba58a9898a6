"""SkyPilot tasks through SkyPilot's own parser."""

import json
import sys

import sky


def complaints_of(document):
    """What the parser says of one task, its empty variables filled in as a user would."""
    filled = {"DATA_SOURCE": "s3://bucket/data", "CHECKPOINT_BUCKET": "s3://bucket-checkpoints"}
    empty = document.get("envs")
    names = [k for k, v in empty.items() if v is None] if isinstance(empty, dict) else []
    try:
        sky.Task.from_yaml_config(document, [(name, filled[name]) for name in names])
    except BaseException as error:  # noqa: BLE001  The parser ends the program on some mistakes.
        return [f"{type(error).__name__}: {error}".replace("\n", " ")[:300] or "refused"]
    return []


for line in sys.stdin:
    target, documents = json.loads(line)
    print(json.dumps([c for document in documents for c in complaints_of(document)]), flush=True)
