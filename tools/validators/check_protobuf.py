"""Triton, TensorFlow Serving and Vertex AI against their protocol buffers, unknown fields refused.

Triton's and Vertex AI's come with their own packages. TensorFlow Serving's two messages are built
here from its model_server_config.proto, file_system_storage_path_source and
session_bundle_config.proto, since its package wants TensorFlow.
"""

import json
import sys

from google.cloud import aiplatform_v1
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    text_format,
    wrappers_pb2,  # noqa: F401  (registers the wrapper messages)
)
from tritonclient.grpc import model_config_pb2

STRING, MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)
ONE, MANY = (
    descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
)


def serving_messages():
    """TensorFlow Serving's ModelServerConfig and BatchingParameters, built from their fields."""
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto", package="serving", syntax="proto3"
    )
    file.dependency.append("google/protobuf/wrappers.proto")

    def message(name, fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, label, type_name) in enumerate(fields, 1):
            made.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)

    message("ModelConfig", [("name", STRING, ONE, None), ("base_path", STRING, ONE, None),
                            ("model_platform", STRING, ONE, None)])  # fmt: skip
    message("ModelConfigList", [("config", MESSAGE, MANY, ".serving.ModelConfig")])
    message("ModelServerConfig", [("model_config_list", MESSAGE, ONE, ".serving.ModelConfigList")])
    number = ".google.protobuf.Int64Value"
    message(
        "BatchingParameters",
        [
            (name, MESSAGE, ONE, number)
            for name in (
                "max_batch_size",
                "batch_timeout_micros",
                "max_enqueued_batches",
                "num_batch_threads",
            )
        ],
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName("serving." + name))
            for name in ("ModelServerConfig", "BatchingParameters")]  # fmt: skip


SERVING = serving_messages()


def text(source, message):
    """(complaints, message) of a text-format source; no message where it does not parse."""
    try:
        return [], text_format.Parse(source, message)
    except text_format.ParseError as error:
        return [str(error)], None


def triton(texts):
    """Complaints about a config.pbtxt."""
    complaints, config = text(texts[0], model_config_pb2.ModelConfig())
    if config is not None:
        complaints += [f"no {name}" for name in ("name", "backend") if not getattr(config, name)]
        complaints += [] if config.max_batch_size > 0 else ["no batch size"]
    return complaints


def serving(texts):
    """Complaints about a model configuration and its batching parameters."""
    return [c for source, kind in zip(texts, SERVING, strict=True) for c in text(source, kind())[0]]


#: What the reference of CustomJobSpec calls required; the package's messages do not carry it.
REQUIRED = {
    "spec": ("worker_pool_specs",),
    "pool": ("machine_spec.machine_type", "replica_count", "container_spec.image_uri"),
}


def required(spec):
    """Required fields that are empty."""
    owners = [("spec", spec), *(("pool", pool) for pool in spec.worker_pool_specs)]
    complaints = []
    for kind, owner in owners:
        for path in REQUIRED[kind]:
            value = owner
            for name in path.split("."):
                value = getattr(value, name)
            complaints += [] if value else [f"{kind}.{path} is missing"]
    if spec.HasField("base_output_directory") and not spec.base_output_directory.output_uri_prefix:
        complaints.append("spec.base_output_directory.output_uri_prefix is missing")
    return complaints


def vertex(documents):
    """Complaints about a CustomJobSpec."""
    spec = aiplatform_v1.CustomJobSpec.pb()()
    try:
        json_format.ParseDict(documents[0], spec)
    except (json_format.ParseError, TypeError, ValueError) as error:
        return [str(error)]
    return required(spec)


CHECKS = {"triton": triton, "tensorflow-serving": serving, "vertex": vertex}

for line in sys.stdin:
    target, documents = json.loads(line)
    print(json.dumps(CHECKS[target](documents)), flush=True)
