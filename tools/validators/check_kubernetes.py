"""Strict checks of Kubernetes objects. Runs in an environment of its own; speaks JSON lines.

Reads one ``[target, documents]`` per line and answers a list of complaints per line. Plain objects
are checked against Kubernetes' own schemas with unknown keys refused; JobSet and TrainJob must
survive a round trip through the typed models of the Kubeflow trainer unchanged; KServe's against
its typed models; RayJob against all fields of KubeRay's v1 types, its pods as pods.
"""

import importlib
import json
import sys
import types

import kubernetes_validate
from kubeflow_trainer_api import models
from kubernetes import client

VERSION = kubernetes_validate.latest_version()
API = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "RayJob": "ray.io/v1",
    "InferenceService": "serving.kserve.io/v1beta1",
}
#: Fields of ``ray-operator/apis/ray/v1/{rayjob,raycluster}_types.go`` in ray-project/kuberay, read
#: 2026-11-21.
RAY_JOB = {
    "activeDeadlineSeconds": int, "backoffLimit": int, "rayClusterSpec": dict,
    "submitterPodTemplate": dict, "metadata": dict, "clusterSelector": dict,
    "submitterConfig": dict, "managedBy": str, "deletionStrategy": dict, "entrypoint": str,
    "runtimeEnvYAML": str, "jobId": str, "submissionMode": str, "entrypointResources": str,
    "entrypointNumCpus": float, "entrypointNumGpus": float, "ttlSecondsAfterFinished": int,
    "shutdownAfterJobFinishes": bool, "suspend": bool, "schedule": str,
}  # fmt: skip
RAY_CLUSTER = {
    "headGroupSpec": dict, "workerGroupSpecs": list, "rayVersion": str,
    "enableInTreeAutoscaling": bool, "autoscalerOptions": dict, "headServiceAnnotations": dict,
    "suspend": bool,
}  # fmt: skip
RAY_HEAD = {
    "serviceType": str, "headService": dict, "enableIngress": bool, "rayStartParams": dict,
    "template": dict,
}  # fmt: skip
RAY_WORKER = {
    "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "numOfHosts": int,
    "rayStartParams": dict, "template": dict, "scaleStrategy": dict,
}  # fmt: skip


#: Closed sets of words, which the published schemas leave open (API reference of each field).
WORDS = {
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "completionMode": {"NonIndexed", "Indexed"},
    "podReplacementPolicy": {"TerminatingOrFailed", "Failed"},
    "medium": {"", "Memory"},
    "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "action": {"FailJob", "FailIndex", "Ignore", "Count"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode"},
}


def words(value):
    """Words outside a closed set, anywhere in plain data."""
    if isinstance(value, list):
        return [c for item in value for c in words(item)]
    if not isinstance(value, dict):
        return []
    wrong = [f"{key} is {value[key]!r}" for key, allowed in WORDS.items()
             if isinstance(value.get(key), str) and value[key] not in allowed]  # fmt: skip
    return wrong + [c for item in value.values() for c in words(item)]


def plain(document):
    """Complaints about an object of Kubernetes itself, against its strict schema."""
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except Exception as error:  # noqa: BLE001  The package raises a type per failure.
        return [f"{document.get('kind')}: {error}".split("\n")[0]]
    return words(document)


def pod(template):
    """A pod template, checked as the pod that it becomes."""
    meta = {"name": "pod", **template.get("metadata", {})}
    return plain({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})


def round_trip(document, model):
    """Complaints of a generated model, which must give back what it was given."""
    try:
        back = model.from_dict(document).to_dict()
    except Exception as error:  # noqa: BLE001
        return [str(error).replace("\n", " ")]
    return [] if back == document else ["the typed model gives back something else"]


def named(document, kind):
    """Whether a document says the kind and the version that it should."""
    right = document.get("kind") == kind and document.get("apiVersion") == API[kind]
    return [] if right else [f"not a {kind} of {API[kind]}"]


def jobset(document):
    """Complaints about a JobSet and the jobs in it."""
    complaints = named(document, "JobSet") + round_trip(document, models.JobsetV1alpha2JobSet)
    for replicated in document.get("spec", {}).get("replicatedJobs", []):
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}}
        complaints += plain({**job, **replicated["template"]})
    return complaints


def trainjob(document):
    """Complaints about a TrainJob."""
    return named(document, "TrainJob") + round_trip(document, models.TrainerV1alpha1TrainJob)


def fields(value, known, required):
    """Keys that are unknown, missing or of another type; a boolean is no integer."""
    complaints = [f"unknown key {key}" for key in value if key not in known]
    complaints += [f"missing {key}" for key in required if key not in value]
    for key, kind in known.items():
        if key in value and (
            not isinstance(value[key], kind) or (kind is int and isinstance(value[key], bool))
        ):
            complaints.append(f"{key} is no {kind.__name__}")
    return complaints


def rayjob(document):
    """Complaints about a RayJob, its cluster and its pods."""
    spec = document.get("spec", {})
    complaints = named(document, "RayJob") + words(spec)
    complaints += fields(spec, RAY_JOB, ("entrypoint", "rayClusterSpec"))
    cluster = spec.get("rayClusterSpec", {})
    complaints += fields(cluster, RAY_CLUSTER, ("headGroupSpec",))
    head = cluster.get("headGroupSpec", {})
    complaints += fields(head, RAY_HEAD, ("rayStartParams", "template"))
    groups = cluster.get("workerGroupSpecs", [])
    required = ("groupName", "rayStartParams", "template", "minReplicas", "maxReplicas")
    for group in groups:
        complaints += fields(group, RAY_WORKER, required)
    for owner in (head, *groups):
        if "template" in owner:
            complaints += pod(owner["template"])
    return complaints


def kserve_model(name):
    """A typed model of KServe, without its package, which wants a web server."""
    if "kserve" not in sys.modules:
        spec = importlib.util.find_spec("kserve")
        package = types.ModuleType("kserve")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["kserve"] = package
        sub = types.ModuleType("kserve.models")
        sub.__path__ = [path + "/models" for path in package.__path__]
        sys.modules["kserve.models"] = sub
    words = "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
    return getattr(importlib.import_module("kserve.models." + words), name)


def typed(value, kind, where):
    """Walk plain data beside a generated model's own table of types."""
    if kind.startswith("list["):
        if not isinstance(value, list):
            return [where + " is no list"]
        return [c for n, item in enumerate(value) for c in typed(item, kind[5:-1], f"{where}.{n}")]
    if kind.startswith("dict("):
        inner = kind[5:-1].split(", ", 1)[1]
        if not isinstance(value, dict):
            return [where + " is no mapping"]
        return [c for key, item in value.items() for c in typed(item, inner, f"{where}.{key}")]
    simple = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}
    if kind in simple:
        return [] if isinstance(value, simple[kind]) else [f"{where} is no {kind}"]
    model = getattr(client, kind, None)
    if model is None:
        try:
            model = kserve_model(kind)
        except ModuleNotFoundError:
            return []
    return typed_fields(value, model, where)


def typed_fields(value, model, where):
    """Complaints about plain data beside one generated model, key by key."""
    if not isinstance(value, dict):
        return [where + " is no mapping"]
    names = {alias: attribute for attribute, alias in model.attribute_map.items()}
    complaints = [f"{where} has no key {key}" for key in value if key not in names]
    for alias, attribute in names.items():
        if alias in value:
            kind = model.openapi_types[attribute]
            complaints += typed(value[alias], kind, f"{where}.{alias}")
    return complaints


def kserve(document):
    """Complaints about an InferenceService, which KServe's own models leave half unchecked."""
    complaints = named(document, "InferenceService")
    body = {key: value for key, value in document.items() if key != "status"}
    complaints += typed_fields(body, kserve_model("V1beta1InferenceService"), "service")
    predictor = document.get("spec", {}).get("predictor")
    if not isinstance(predictor, dict):
        return [*complaints, "no predictor"]
    if not predictor.get("model", {}).get("modelFormat", {}).get("name"):
        complaints.append("the model format has no name")
    return complaints


CHECKS = {"jobset": jobset, "trainjob": trainjob, "rayjob": rayjob, "kserve": kserve}

for line in sys.stdin:
    target, documents = json.loads(line)
    check = CHECKS.get(target, plain)
    print(json.dumps([c for document in documents for c in check(document)]), flush=True)
