"""SageMaker requests against a JSON schema made from botocore's own model, then against moto.

botocore checks names and types but neither enums nor patterns, and moto accepts nonsense; the
service's model holds them all, so the schema made of it refuses them.
"""

import json
import os
import sys

import boto3
import botocore.session
import jsonschema
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
MODEL = botocore.session.get_session().get_service_model("sagemaker")
OPERATIONS = {
    "sagemaker": ["CreateTrainingJob"],
    "sagemaker-endpoint": ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"],
}


def schema(shape, seen=()):
    """A JSON schema of a botocore shape; what contains itself is free below its second mention."""
    if shape.name in seen:
        return {}
    seen = (*seen, shape.name)
    meta = shape.metadata
    if shape.type_name == "structure":
        properties = {name: schema(member, seen) for name, member in shape.members.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False,
                "required": list(shape.required_members)}  # fmt: skip
    if shape.type_name == "list":
        return {"type": "array", "items": schema(shape.member, seen), **bounds(meta, "Items")}
    if shape.type_name == "map":
        return {
            "type": "object",
            "propertyNames": schema(shape.key, seen),
            "additionalProperties": schema(shape.value, seen),
            **bounds(meta, "Properties"),
        }
    if shape.type_name == "string":
        found = {"type": "string", **bounds(meta, "Length")}
        if shape.enum:
            found["enum"] = list(shape.enum)
        if meta.get("pattern"):
            found["pattern"] = f"^(?:{meta['pattern']})$"
        return found
    kinds = {"integer": "integer", "long": "integer", "boolean": "boolean", "float": "number",
             "double": "number"}  # fmt: skip
    kind = kinds.get(shape.type_name)
    found = {"type": kind} if kind else {}
    if "min" in meta:
        found["minimum"] = meta["min"]
    if "max" in meta:
        found["maximum"] = meta["max"]
    return found


def bounds(meta, word):
    """A shape's ``min`` and ``max`` under the names of a JSON schema, such as ``minLength``."""
    found = {}
    if "min" in meta:
        found["min" + word] = meta["min"]
    if "max" in meta:
        found["max" + word] = meta["max"]
    return found


SCHEMAS = {
    operation: jsonschema.Draft202012Validator(schema(MODEL.operation_model(operation).input_shape))
    for operations in OPERATIONS.values()
    for operation in operations
}


def run(operations, documents):
    """The requests, really made, against a service that is not there."""
    with mock_aws():
        client = boto3.client("sagemaker")
        for operation, document in zip(operations, documents, strict=True):
            words = "".join("_" + c.lower() if c.isupper() else c for c in operation).lstrip("_")
            getattr(client, words)(**document)


for line in sys.stdin:
    target, documents = json.loads(line)
    operations = OPERATIONS[target]
    complaints = [
        f"{operation}: {error.json_path} {error.message}"[:300]
        for operation, document in zip(operations, documents, strict=True)
        for error in SCHEMAS[operation].iter_errors(document)
    ]
    if not complaints:
        try:
            run(operations, documents)
        except Exception as error:  # noqa: BLE001
            complaints.append(str(error))
    print(json.dumps(complaints), flush=True)
