"""Machines of a cluster, as its scheduler lists its nodes.

Two lists are read: ``kubectl get nodes -o json``, and ``scontrol show nodes`` of Slurm. Nodes
that take no jobs now are left out, and so are nodes without an accelerator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from paceline.errors import InvalidInputError
from paceline.patterns import pattern
from paceline.values import dataclass

Scheduler = Literal["slurm", "kubernetes"]

_PRODUCT = "nvidia.com/gpu.product"
#: Before the profile of slices (MIG) that are resources of their own.
_SLICE = "nvidia.com/mig-"
#: Of names of devices: shared by time, and TPUs by how they are wired.
_ENDINGS = ("-SHARED", "-podslice", "-slice", "-device")
#: Resources of device plug-ins, with the label that names the device.
_RESOURCES = (
    ("nvidia.com/gpu", _PRODUCT),
    ("amd.com/gpu", "amd.com/gpu.product-name"),
    ("nvidia.com/gpu", "cloud.google.com/gke-accelerator"),
    ("google.com/tpu", "cloud.google.com/gke-tpu-accelerator"),
    ("habana.ai/gaudi", "habana.ai/gaudi.product"),
)
#: Labels that name the pool of a node, of GKE, EKS, AKS and kOps.
_POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool", "kops.k8s.io/instancegroup",
)  # fmt: skip
#: States in which Slurm gives a node no jobs.
_CLOSED = frozenset({
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING",
    "POWERED_DOWN", "POWERING_DOWN", "FUTURE", "UNKNOWN", "INVAL", "INVALID_REG",
})  # fmt: skip
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9}
_QUANTITY = pattern(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|m)?")
#: ``gpu:a100:8(S:0-1)``; the kind may be missing.
_GRES = pattern(r"gpu(?::(?P<kind>[^:,()]+?))?:(?P<count>\d+)(?=[,(]|$)")
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes alike.

    Attributes:
        name: Of their pool or partition, with the device where it has several.
        device: As the scheduler spells it; empty where it does not.
        num_devices: Of each node.
        num_machines: Nodes that take jobs.
        num_cores: Physical cores of each; None where only hardware threads are listed.
        host_memory_bytes: Of the smallest; None where it is not listed.
        scheduler: Who gives them jobs.
        queue: Their partition and type of accelerator as Slurm names both: ``accel/a100``.
    """

    name: str
    device: str
    num_devices: int
    num_machines: int
    num_cores: int | None
    host_memory_bytes: float | None
    scheduler: Scheduler
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    pool: str
    device: str
    num_devices: int
    num_cores: int | None
    host_memory_bytes: float | None
    queue: str = ""


def is_node_list(text: str) -> bool:
    """Whether a text is a list of nodes rather than a file of facts.

    >>> is_node_list("NodeName=n1 CoresPerSocket=32 Gres=gpu:a100:8 State=IDLE")
    True
    >>> is_node_list("devices: []")
    False
    """
    if text.lstrip().startswith("{"):
        return re.search(r'"kind":\s*"Node"', text) is not None
    return text.lstrip().startswith("NodeName=")


def node_groups(text: str, *, what: str) -> tuple[NodeGroup, ...]:
    """Groups of nodes alike, in the order of the list.

    Args:
        text: What the scheduler printed.
        what: Names the text in messages.

    Raises:
        InvalidInputError: It cannot be read, or no node with an accelerator takes jobs.
    """
    scheduler, nodes = _nodes(text, what)
    if not nodes:
        raise InvalidInputError(
            f"{what} lists no node with an accelerator that takes jobs",
            hint="list the nodes again, or write them by hand as in docs/how-to/own-devices.md",
        )
    alike: dict[tuple[str, str, int], list[_Node]] = {}
    for node in nodes:
        alike.setdefault((node.pool, node.device, node.num_devices), []).append(node)
    pools = [pool for pool, _, _ in alike]
    return tuple(
        NodeGroup(
            name=pool if pools.count(pool) == 1 else f"{pool} {count}x{device}",
            device=device,
            num_devices=count,
            num_machines=len(group),
            num_cores=_least(node.num_cores for node in group),
            host_memory_bytes=_least(node.host_memory_bytes for node in group),
            scheduler=scheduler,
            queue=group[0].queue,
        )
        for (pool, device, count), group in alike.items()
    )


def _nodes(text: str, what: str) -> tuple[Scheduler, list[_Node]]:
    try:
        if not text.lstrip().startswith("{"):
            return "slurm", list(_of_slurm(_records(text)))
        data = json.loads(text)
        return "kubernetes", list(_of_kubernetes(data.get("items", [data])))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError(
            f"{what} is no list of nodes that can be read: {error}",
            hint="write it with `kubectl get nodes -o json` or `scontrol show nodes`",
        ) from None


def _of_kubernetes(items: Sequence[Mapping[str, Any]]) -> Iterator[_Node]:
    for item in items:
        labels, status = item["metadata"].get("labels", {}), item["status"]
        memory = status.get("allocatable", {}).get("memory")
        for device, count in _accelerators(labels, status.get("allocatable", {})):
            if _is_open(item):
                yield _Node(
                    pool=next((labels[one] for one in _POOLS if one in labels), device or "nodes"),
                    device=device,
                    num_devices=count,
                    num_cores=None,
                    host_memory_bytes=None if memory is None else _quantity(memory),
                )


def _is_open(item: Mapping[str, Any]) -> bool:
    """Whether new pods may come to a node of Kubernetes."""
    conditions = item["status"].get("conditions", ())
    is_ready = all(one["status"] == "True" for one in conditions if one["type"] == "Ready")
    return is_ready and not item.get("spec", {}).get("unschedulable")


def _accelerators(
    labels: Mapping[str, str], allocatable: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Devices of a node with their count, by their label, or else by the node's type."""
    counts = {name: int(_quantity(count)) for name, count in allocatable.items() if "/" in name}
    for name, count in counts.items():
        if name.startswith(_SLICE) and count:
            yield f"{labels.get(_PRODUCT, '')} {name.removeprefix(_SLICE)}".strip(), count
    whole = {name: counts.get(name, 0) for name, _ in _RESOURCES}
    named = (labels[label] for name, label in _RESOURCES if whole[name] and label in labels)
    if count := max(whole.values()):
        device = next(named, labels.get("node.kubernetes.io/instance-type", ""))
        for ending in _ENDINGS:
            device = device.removesuffix(ending)
        # Of slices of time there are more than devices, whose number has a label of its own.
        yield device.replace("_", " "), int(labels.get("nvidia.com/gpu.count", count))


def _quantity(text: str) -> float:
    """A quantity of Kubernetes as a number.

    >>> _quantity("1056270300Ki")
    1081620787200.0
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"`{text}` is no quantity")
    return float(found[1]) * (1e-3 if found[2] == "m" else _UNITS.get(found[2] or "", 1))


def _records(text: str) -> Iterator[dict[str, str]]:
    """One record for each node of ``scontrol show nodes``, on one line or on several."""
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        words = re.findall(r"(?:^|\s)([A-Za-z:/]+)=(\S*)", block)
        if words:
            yield dict(words)


def _of_slurm(records: Iterable[Mapping[str, str]]) -> Iterator[_Node]:
    for record in records:
        states = {one.strip("*~#!%$@^-") for one in record.get("State", "").upper().split("+")}
        if states & _CLOSED or record.get("State", "").endswith("*"):
            continue
        cores = int(record.get("CoresPerSocket") or 0) * int(record.get("Sockets") or 1)
        memory_mib = int(record.get("RealMemory") or 0)
        partition = record.get("Partitions", "").split(",")[0]
        for gres in _GRES.finditer(record.get("Gres", "")):
            kind = gres["kind"] or ""
            yield _Node(
                pool=partition or "nodes",
                queue=f"{partition}/{kind}",
                device=kind.replace("_", " "),
                num_devices=int(gres["count"]),
                num_cores=cores or None,
                host_memory_bytes=memory_mib * _MIB or None,
            )


def _least(facts: Iterable[Any]) -> Any:
    return min((one for one in facts if one is not None), default=None)
