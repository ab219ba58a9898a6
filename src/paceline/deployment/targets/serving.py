"""Serving: Triton, TorchServe, KServe and TensorFlow Serving, as the plan says."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none
from paceline.deployment.facts import api_version, sizing
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of, container_words
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets import kubernetes as k8s
from paceline.errors import InvalidInputError, MissingFactError
from paceline.parallelism.strategy.strategy import Strategy

_MODELS = "/models"
_VERSION_FOLDER = "1"
_OPEN_PORTS = "a network in which only callers reach the ports: requests are not asked for a key"


def triton(job: Job, settings: DeploySettings) -> Deployment:
    """``config.pbtxt`` of a model repository, and the script that starts the server on it."""
    backend = settings.need("backend", "the backend of the model file (onnxruntime, pytorch, …)")
    image = _server_image(settings, "nvcr.io/nvidia/tritonserver:YY.MM-py3")
    model = f"the model file in models/{job.name}/{_VERSION_FOLDER}/"
    needs = (model, _OPEN_PORTS, *launch.driver_need(job))
    files = {f"models/{job.name}/config.pbtxt": _triton_config(job, backend)}
    return _served("triton", _triton_script(job, image, needs), files, needs, job, settings)


def _served(
    target: str, script: str, files: Mapping[str, str], needs: tuple[str, ...], job: Job,
    settings: DeploySettings,
) -> Deployment:  # fmt: skip
    """A server that a script starts, with the text of each file beside it."""
    texts = {"serve.sh": script, **files}
    return Deployment(
        target=target,
        files=tuple(DeployFile(path=path, text=text) for path, text in texts.items()),
        command="sh serve.sh",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def kserve(job: Job, settings: DeploySettings) -> Deployment:
    """``inference-service.yaml`` for the runtime that knows the model's format."""
    model_format = settings.need("format", "the format of the model (pytorch, onnx, tensorflow, …)")
    num_replicas, job = _replicas(job)
    needs = (
        "KServe in the cluster",
        *launch.driver_need(job),
        *k8s.device_need(job, settings),
    )
    model = {
        "modelFormat": {"name": model_format},
        "protocolVersion": "v2",
        "storageUri": _model_location(job),
        "resources": k8s.resources(job),
        "env": [{"name": name, "value": k8s.literal(value)} for name, value in job.environment],
    }
    document = {
        "apiVersion": api_version("inference_service"),
        "kind": "InferenceService",
        "metadata": k8s.metadata(job, settings),
        "spec": {"predictor": _predictor(job, settings, model, num_replicas)},
    }
    return k8s.applied("kserve", "inference-service.yaml", [document], needs, job, settings)


def tensorflow_serving(job: Job, settings: DeploySettings) -> Deployment:
    """Model list, batching parameters and a script for TensorFlow Serving."""
    image = _server_image(settings, "tensorflow/serving:RELEASE or RELEASE-gpu")
    model = f"a SavedModel in models/{job.name}/{_VERSION_FOLDER}/"
    needs = (model, _OPEN_PORTS, *launch.driver_need(job))
    files = {
        "models/models.config": _tensorflow_models(job),
        "models/batching.config": _tensorflow_batching(job),
    }
    script = _tensorflow_script(job, image, needs)
    return _served("tensorflow-serving", script, files, needs, job, settings)


def torchserve(job: Job, settings: DeploySettings) -> Deployment:
    """``config.properties`` of TorchServe with one worker per device, and the script to start it.

    The management port, which can register models, stays inside the container. Unless told not to,
    the server asks every request for a key that it writes inside the container and renews each
    hour; whoever reaches the port is served.
    """
    image = _server_image(settings, "pytorch/torchserve:RELEASE-cpu or RELEASE-gpu")
    needs = (
        f"models/{job.name}.mar, from torch-model-archiver, whose handler takes batches",
        _OPEN_PORTS,
        *launch.driver_need(job),
    )
    files = {"models/config.properties": _torchserve_config(job)}
    return _served("torchserve", _torchserve_script(job, image, needs), files, needs, job, settings)


def _torchserve_script(job: Job, image: str, needs: tuple[str, ...]) -> str:
    ports = [_port(name, "torchserve") for name in ("inference_port", "metrics_port")]
    words = [
        "torchserve", "--start", "--foreground", "--no-config-snapshots",
        f"--model-store={_MODELS}", f"--ts-config={_MODELS}/config.properties",
    ]  # fmt: skip
    return _container_script(job, image, needs, ports, words, ready="ping")


def _torchserve_config(job: Job) -> str:
    """Addresses, and the model with the plan's batch as the largest."""
    facts = sizing()["torchserve"]
    archive, num_workers = f"{job.name}.mar", max(1, job.devices_per_node)
    delay_ms = max(1, round(sizing()["serving"]["max_queue_delay_us"] / 1e3))
    model = {
        "defaultVersion": True,
        "marName": archive,
        "minWorkers": num_workers,
        "maxWorkers": num_workers,
        "batchSize": job.choice.batch_per_device,
        "maxBatchDelay": delay_ms,
    }
    properties = {
        "inference_address": f"http://{facts['served_host']}:{facts['inference_port']}",
        "management_address": f"http://{facts['inner_host']}:{facts['management_port']}",
        "metrics_address": f"http://{facts['served_host']}:{facts['metrics_port']}",
        "disable_token_authorization": "true",
        "number_of_gpu": job.devices_per_node,
        "load_models": archive,
        "models": json.dumps({job.name: {facts["model_version"]: model}}),
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _triton_script(job: Job, image: str, needs: tuple[str, ...]) -> str:
    ports = [_port(name) for name in ("http_port", "grpc_port", "metrics_port")]
    words = ["tritonserver", f"--model-repository={_MODELS}"]
    return _container_script(job, image, needs, ports, words, ready="v2/health/ready")


def _tensorflow_script(job: Job, image: str, needs: tuple[str, ...]) -> str:
    http, grpc = _port("http_port"), _port("grpc_port")
    words = [
        "tensorflow_model_server",
        f"--rest_api_port={http}",
        f"--port={grpc}",
        f"--model_config_file={_MODELS}/models.config",
        "--enable_batching=true",
        f"--batching_parameters_file={_MODELS}/batching.config",
    ]
    ready = f"v1/models/{job.name}"
    return _container_script(job, image, needs, [http, grpc], words, ready=ready)


def _container_script(
    job: Job,
    image: str,
    needs: tuple[str, ...],
    ports: list[int],
    words: list[str],
    *,
    ready: str,
) -> str:
    """A script that becomes the server in its container.

    Args:
        job: The job.
        image: Of the server.
        needs: What must be in place.
        ports: Those that callers reach, the one for requests over HTTP first.
        words: The server's command.
        ready: Path there that answers with status 200 once the models are loaded.
    """
    published = [word for port in ports for word in ("--publish", f"{port}:{port}")]
    run: list[shell.Word] = [
        "docker", "run", "--rm", "--init", "--security-opt=no-new-privileges",
        f"--stop-timeout={job.grace_s}",
        f"--shm-size={job.shm_bytes // 2**20}m", f"--cpus={job.cpus_per_node}",
        f"--memory={job.memory_bytes // 2**20}m", *container_words(job, "docker"), *published,
        "--volume", shell.Variable("PWD", suffix=f"/models:{_MODELS}:ro"),
        "--entrypoint", words[0], image, *words[1:],
    ]  # fmt: skip
    comments = [f"# {line}" for line in launch.header(job, needs)]
    comments.append(f"# ready when `curl --fail localhost:{ports[0]}/{ready}` succeeds")
    return "\n".join(["#!/bin/sh", *comments, "set -eu", "exec " + shell.join(run)]) + "\n"


def _triton_config(job: Job, backend: str) -> str:
    """The batch of the plan as the largest; half and quarter of it preferred too."""
    batch = job.choice.batch_per_device
    preferred = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    delay_us = int(sizing()["serving"]["max_queue_delay_us"])
    kind = "KIND_CPU" if job.stack.platform == "cpu" else "KIND_GPU"
    devices = "" if kind == "KIND_CPU" else f", gpus: {list(range(job.devices_per_node))}"
    lines = [
        f"name: {json.dumps(job.name)}",
        f"backend: {json.dumps(backend)}",
        f"max_batch_size: {batch}",
        f"dynamic_batching {{ preferred_batch_size: {preferred}, "
        f"max_queue_delay_microseconds: {delay_us} }}",
        f"instance_group [ {{ count: 1, kind: {kind}{devices} }} ]",
    ]
    return "\n".join(lines) + "\n"


def _tensorflow_models(job: Job) -> str:
    path = json.dumps(f"{_MODELS}/{job.name}")
    return (
        "model_config_list {\n"
        f"  config {{ name: {json.dumps(job.name)}, base_path: {path}, "
        'model_platform: "tensorflow" }\n'
        "}\n"
    )


def _tensorflow_batching(job: Job) -> str:
    batch = job.choice.batch_per_device
    delay_us = int(sizing()["serving"]["max_queue_delay_us"])
    return (
        f"max_batch_size {{ value: {batch} }}\n"
        f"batch_timeout_micros {{ value: {delay_us} }}\n"
        f"num_batch_threads {{ value: {job.cpus_per_node} }}\n"
        f"max_enqueued_batches {{ value: {4 * job.cpus_per_node} }}\n"
    )


def _replicas(job: Job) -> tuple[int, Job]:
    """Replicas of the model, and the job as one of them: each data-parallel rank serves alone."""
    mesh = Strategy.parse(job.choice.strategy).mesh
    num_replicas = math.prod(axis.size for axis in mesh if axis.name == "dp")
    if not job.devices_per_node or num_replicas == 1:
        return num_replicas, job
    devices = max(1, job.num_nodes * job.devices_per_node // num_replicas)
    share = min(1, devices / job.devices_per_node)
    return num_replicas, replace(
        job,
        devices_per_node=devices,
        cpus_per_node=max(1, math.floor(job.cpus_per_node * share)),
        memory_bytes=math.floor(job.memory_bytes * share),
    )


def _predictor(
    job: Job, settings: DeploySettings, model: dict[str, Any], num_replicas: int
) -> dict[str, Any]:
    predictor = {
        "minReplicas": num_replicas,
        "maxReplicas": num_replicas,
        "serviceAccountName": settings.options.get("service-account"),
        "nodeSelector": k8s.node_selector(job, settings) or None,
        "tolerations": k8s.tolerations(job, settings) or None,
        "model": model,
    }
    return without_none(predictor)


def _port(name: str, server: str = "serving") -> int:
    return int(sizing()[server][name])


def _model_location(job: Job) -> str:
    if job.data is None:
        raise MissingFactError(
            "the location of the model is not in the plan",
            hint="give it with `--data s3://…`, `gs://…` or `pvc://claim/path`",
        )
    if "://" not in job.data:
        raise InvalidInputError(
            f"`{job.data}` is not the location of a model", hint="write it like s3://bucket/model"
        )
    return job.data


def _server_image(settings: DeploySettings, example: str) -> str:
    if settings.image is None:
        raise MissingFactError(
            "the image of the server is not in the plan", hint=f"give it with `--image {example}`"
        )
    return settings.image
