"""Ten broken copies per target: misspelt keys, wrong types, wrong words, missing names."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

Path = Sequence[str | int]

_POD = ("template", "spec")
_JOB_POD = (1, "spec", *_POD)
_SET_JOB = (0, "spec", "replicatedJobs", 0, "template", "spec")
_SET_POD = (*_SET_JOB, *_POD)
_RUNTIME = (0, "spec", "runtimePatches", 0, "trainingRuntimeSpec", "template", "spec",
            "replicatedJobs", 0)  # fmt: skip
_WORKERS = (0, "spec", "rayClusterSpec", "workerGroupSpecs", 0)
_POOL = (0, "workerPoolSpecs", 0)

#: Per target: (what is done, where, with what). ``rename`` and ``drop`` need no type.
MUTANTS: dict[str, list[tuple[str, Path, Any]]] = {
    "docker": [
        ("rename", (0, "services", "train", "shm_size"), "shmsize"),
        ("rename", (0, "services", "train", "environment"), "enviroment"),
        ("rename", (0, "services"), "service"),
        ("rename", (0, "services", "train", "stop_grace_period"), "stop_grace"),
        ("set", (0, "services", "train", "init"), "perhaps"),
        ("set", (0, "services", "train", "volumes"), "data"),
        ("set", (0, "services", "train", "deploy"), []),
        ("set", (0, "services", "train", "volumes", 0, "type"), 7),
        ("set", (0, "name"), ["a"]),
        ("set", (0, "services", "train", "stop_grace_period"), "soon"),
    ],
    "kubernetes": [
        ("rename", (1, "spec", "completions"), "completion"),
        ("rename", (*_JOB_POD, "containers", 0, "image"), "img"),
        ("rename", (*_JOB_POD, "volumes", 0, "emptyDir"), "emptydir"),
        ("rename", (1, "spec", "podFailurePolicy", "rules", 0, "action"), "act"),
        ("set", (1, "spec", "parallelism"), "two"),
        ("set", (*_JOB_POD, "containers", 0, "command"), "torchrun"),
        ("set", (*_JOB_POD, "containers", 0, "env", 0, "value"), 10),
        ("set", (*_JOB_POD, "restartPolicy"), "Sometimes"),
        ("set", (1, "spec", "completionMode"), "Ordered"),
        ("drop", (*_JOB_POD, "containers", 0, "name"), None),
    ],
    "jobset": [
        ("rename", (0, "spec", "replicatedJobs"), "replicatedJob"),
        ("rename", (0, "spec", "network", "enableDNSHostnames"), "enableDnsHostnames"),
        ("rename", (*_SET_JOB, "backoffLimit"), "backOffLimit"),
        ("rename", (*_SET_POD, "containers", 0, "volumeMounts"), "volumeMount"),
        ("set", (0, "spec", "failurePolicy", "maxRestarts"), "3"),
        ("set", (0, "spec", "replicatedJobs", 0, "replicas"), "one"),
        ("set", (*_SET_POD, "restartPolicy"), "Sometimes"),
        ("set", (0, "kind"), "JobSets"),
        ("drop", (0, "spec", "replicatedJobs", 0, "name"), None),
        ("drop", (*_SET_POD, "containers", 0, "name"), None),
    ],
    "trainjob": [
        ("rename", (0, "spec", "runtimeRef"), "runtime"),
        ("rename", (0, "spec", "trainer", "numNodes"), "nodes"),
        ("rename", (0, "spec", "trainer", "resourcesPerNode"), "resources"),
        ("rename", (*_RUNTIME, "template", "spec", "template", "spec", "volumes"), "volume"),
        ("set", (0, "spec", "trainer", "numProcPerNode"), "auto"),
        ("set", (0, "spec", "trainer", "args"), "train.py"),
        ("set", (0, "spec", "trainer", "numNodes"), "two"),
        ("set", (0, "apiVersion"), "kubeflow.org/v1"),
        ("drop", (0, "spec", "runtimeRef", "name"), None),
        ("drop", (*_RUNTIME, "name"), None),
    ],
    "skypilot": [
        ("rename", (0, "resources"), "resource"),
        ("rename", (0, "num_nodes"), "nodes"),
        ("rename", (0, "resources", "use_spot"), "spot"),
        ("rename", (0, "resources", "image_id"), "image"),
        ("rename", (0, "file_mounts", "/checkpoints", "mode"), "modus"),
        ("set", (0, "num_nodes"), "two"),
        ("set", (0, "envs"), ["A"]),
        ("set", (0, "run"), ["torchrun"]),
        ("set", (0, "file_mounts", "/checkpoints", "mode"), "SOMETIMES"),
        ("set", (0, "resources", "accelerators"), 8),
    ],
    "rayjob": [
        ("rename", (0, "spec", "entrypoint"), "entryPoint"),
        ("rename", (0, "spec", "rayClusterSpec"), "clusterSpec"),
        ("rename", (*_WORKERS, "maxReplicas"), "max"),
        ("rename", (*_WORKERS, *_POD, "containers", 0, "image"), "img"),
        ("set", (*_WORKERS, "replicas"), "two"),
        ("set", (0, "spec", "shutdownAfterJobFinishes"), "yes"),
        ("set", (0, "spec", "rayClusterSpec", "headGroupSpec", "rayStartParams"), ["0"]),
        ("set", (0, "kind"), "Rayjob"),
        ("drop", (*_WORKERS, "groupName"), None),
        ("drop", (*_WORKERS, *_POD, "containers", 0, "name"), None),
    ],
    "sagemaker": [
        ("rename", (0, "ResourceConfig"), "Resources"),
        ("rename", (0, "CheckpointConfig", "LocalPath"), "Path"),
        ("set", (0, "ResourceConfig", "InstanceType"), "ml.p4d.99xlarge"),
        ("set", (0, "ResourceConfig", "InstanceCount"), -1),
        ("set", (0, "AlgorithmSpecification", "TrainingInputMode"), "Fast"),
        ("set", (0, "TrainingJobName"), "two words"),
        ("set", (0, "RoleArn"), "training"),
        ("set", (0, "StoppingCondition", "MaxRuntimeInSeconds"), "2h"),
        ("set", (0, "InputDataConfig", 0, "DataSource", "S3DataSource", "S3Uri"), "/data"),
        ("drop", (0, "RoleArn"), None),
    ],
    "sagemaker-endpoint": [
        ("rename", (0, "PrimaryContainer"), "Container"),
        ("rename", (0, "PrimaryContainer", "ModelDataUrl"), "ModelUrl"),
        ("set", (0, "PrimaryContainer", "Mode"), "Many"),
        ("set", (0, "PrimaryContainer", "MultiModelConfig", "ModelCacheSetting"), "On"),
        ("set", (0, "ModelName"), "two words"),
        ("rename", (1, "ProductionVariants", 0, "InstanceType"), "Type"),
        ("set", (1, "ProductionVariants", 0, "InstanceType"), "p4d.24xlarge"),
        ("set", (1, "ProductionVariants"), []),
        ("drop", (1, "ProductionVariants", 0, "VariantName"), None),
        ("drop", (2, "EndpointConfigName"), None),
    ],
    "azureml": [
        ("rename", (0, "command"), "cmd"),
        ("rename", (0, "resources", "instance_count"), "instances"),
        ("rename", (0, "distribution", "process_count_per_instance"), "processes"),
        ("set", (0, "type"), "comand"),
        ("set", (0, "distribution", "type"), "pytorch2"),
        ("set", (0, "limits", "timeout"), "two hours"),
        ("set", (0, "inputs", "data", "mode"), "read"),
        ("set", (0, "queue_settings", "job_tier"), "cheap"),
        ("set", (0, "environment_variables"), ["A"]),
        ("drop", (0, "environment"), None),
    ],
    "vertex": [
        ("rename", (0, "workerPoolSpecs"), "workerPools"),
        ("rename", (*_POOL, "machineSpec", "acceleratorCount"), "accelerators"),
        ("rename", (*_POOL, "containerSpec", "imageUri"), "image"),
        ("rename", (*_POOL, "replicaCount"), "replicas"),
        ("set", (*_POOL, "machineSpec", "acceleratorType"), "NVIDIA_A1000"),
        ("set", (*_POOL, "replicaCount"), "one"),
        ("set", (*_POOL, "containerSpec", "env"), {"A": "b"}),
        ("set", (0, "scheduling", "timeout"), "2h"),
        ("drop", (*_POOL, "containerSpec", "imageUri"), None),
        ("drop", (0, "baseOutputDirectory", "outputUriPrefix"), None),
    ],
    "kserve": [
        ("rename", (0, "spec", "predictor"), "predict"),
        ("rename", (0, "spec", "predictor", "model", "storageUri"), "uri"),
        ("rename", (0, "spec", "predictor", "model", "modelFormat"), "format"),
        ("rename", (0, "spec", "predictor", "minReplicas"), "min"),
        ("set", (0, "spec", "predictor", "minReplicas"), "one"),
        ("set", (0, "spec", "predictor", "model", "protocolVersion"), 2),
        ("set", (0, "spec", "predictor", "model", "env"), {"A": "b"}),
        ("set", (0, "kind"), "InferenceServices"),
        ("drop", (0, "spec", "predictor", "model", "modelFormat", "name"), None),
        ("drop", (0, "spec", "predictor"), None),
    ],
}  # fmt: skip

#: Texts without keys are broken by replacing a piece: (from, to).
TEXT_MUTANTS: dict[str, list[tuple[str, str]]] = {
    "slurm": [
        ("--nodes=", "--node-count="),
        ("--nodes=2", "--nodes=two"),
        ("--cpus-per-task=", "--cpus-task="),
        ("--cpus-per-task=", "--cpus-per-task=x"),
        ("--mem=", "--memory="),
        ("--mem=", "--mem=many"),
        ("--time=", "--time=soon"),
        ("--signal=B:TERM", "--signal=B:TURM"),
        ("--ntasks-per-node=1", "--ntasks-per-node=one"),
        ("--requeue", "--requeued"),
    ],
    "torchrun": [
        ("--nnodes=", "--nodes="),
        ("--nnodes=2", "--nnodes=two"),
        ("--nproc-per-node=", "--procs="),
        ("--nproc-per-node=8", "--nproc-per-node=many"),
        ("--max-restarts=", "--restarts="),
        ("--max-restarts=3", "--max-restarts=few"),
        ("--rdzv-backend=c10d", "--rdzv-backend=c11d"),
        ("--rdzv-endpoint=", "--rendezvous="),
        (":29500", ":port"),
        ("--rdzv-conf=is_host=", "--rdzv-conf=is_host"),
    ],
    "apptainer": [
        ("Bootstrap:", "Bootstrp:"),
        ("Bootstrap: docker", "Bootstrap: dockerhub"),
        ("Bootstrap: docker\n", ""),
        ("From: ", "Frm: "),
        ("From: ", "From: two words/"),
        ("%post", "%pots"),
        ("%runscript", "%runscripts"),
        ('exec "$@"', 'exec "$@'),
        ("exec apptainer run", "exec apptainer launch"),
        ("--bind ", "--bnd "),
    ],
    "triton": [
        ("max_batch_size:", "max_batch:"),
        ("max_batch_size: 256", 'max_batch_size: "many"'),
        ("backend:", "back_end:"),
        ("dynamic_batching", "dynamic_batch"),
        ("preferred_batch_size", "preferred"),
        ("max_queue_delay_microseconds", "max_queue_delay_ms"),
        ("KIND_GPU", "KIND_CUDA"),
        ("count: 1", "count: one"),
        ("instance_group [", "instance_group {"),
        ('name: "', "name: "),
    ],
    "tensorflow-serving": [
        ("model_config_list", "model_configs"),
        ("base_path", "path"),
        ("model_platform", "platform"),
        ('name: "', "name: "),
        ("config {", "config ["),
        ("max_batch_size", "max_batch"),
        ("batch_timeout_micros", "batch_timeout_ms"),
        ("max_batch_size { value: 256 }", "max_batch_size: 256"),
        ("value: 1000", "value: soon"),
        ("num_batch_threads", "threads"),
    ],
}


def broken_documents(target: str, documents: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Copies of ``documents``, each broken in one place, with what was done."""
    for action, path, value in MUTANTS[target]:
        broken = copy.deepcopy(documents)
        parent: Any = broken
        for step in path[:-1]:
            parent = parent[step]
        _apply(action, parent, path[-1], value)
        yield f"{action} {'.'.join(map(str, path))} {value!r}", broken


def broken_texts(target: str, text: str) -> Iterator[tuple[str, str]]:
    """Copies of ``text``, each broken in one place."""
    for old, new in TEXT_MUTANTS[target]:
        if old not in text:
            raise ValueError(f"the text of {target} has no `{old}` to break")
        yield f"{old} becomes {new}", text.replace(old, new)


def _apply(action: str, parent: Any, key: str | int, value: Any) -> None:
    if action == "rename":
        parent[value] = parent.pop(key)
    elif action == "drop":
        del parent[key]
    else:
        if key not in parent and not isinstance(parent, list):
            raise KeyError(key)
        parent[key] = value
