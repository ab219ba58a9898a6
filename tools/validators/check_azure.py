"""Azure ML jobs through the loader and the validation of azure-ai-ml."""

import io
import json
import sys

import yaml
from azure.ai.ml import load_job


def complaints_of(document):
    """What the loader or its validation says of one job; the loader ends the program on some."""
    try:
        job = load_job(io.StringIO(yaml.safe_dump(document)))
        result = job._validate()
    except BaseException as error:  # noqa: BLE001
        return [f"{type(error).__name__}: {error}".replace("\n", " ")[:300]]
    return [] if result.passed else [str(result.error_messages)]


for line in sys.stdin:
    target, documents = json.loads(line)
    print(json.dumps([c for document in documents for c in complaints_of(document)]), flush=True)
