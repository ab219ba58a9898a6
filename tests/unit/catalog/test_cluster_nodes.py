"""Machines of a cluster, from lists of nodes as Slurm and Kubernetes print them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.catalog.cluster_nodes import node_groups
from paceline.catalog.entities import Machine
from paceline.catalog.load import load_catalog
from paceline.catalog.offer_links import machine_links
from paceline.errors import InvalidInputError

#: As Slurm 22.05 prints a node; what a group needs is filled in.
SLURM = """\
NodeName={name} Arch=x86_64 CoresPerSocket=32{new}CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=7.50
   AvailableFeatures=ib{new}ActiveFeatures=ib{new}Gres={gres}{new}NodeAddr={name} Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0{new}RealMemory={mib} AllocMem=0 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A{new}Partitions=gpu,all
   CfgTRES=cpu=128,mem=2000000M,billing=128{new}Reason=gres/gpu count [root@2026-11-27T21:45:06]
"""


def slurm(*, name: str = "n1", gres: str = "gpu:a100:8(S:0-1)", mib: int = 1000,
          state: str = "IDLE", new: str = "\n   ") -> str:  # fmt: skip
    return SLURM.format(name=name, gres=gres, mib=mib, state=state, new=new)


def kubernetes(*nodes: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes)})


def node(
    allocatable: dict[str, str], labels: dict[str, str], *, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "95", "memory": "1000Mi", **allocatable},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def nvidia(count: int = 8, product: str = "NVIDIA-H100-80GB-HBM3", **more: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": product, "eks.amazonaws.com/nodegroup": "train"}
    return node({"nvidia.com/gpu": str(count)}, labels, **more)


def machines(folder: Path, text: str, facts: str | None = None) -> tuple[Machine, ...]:
    path = folder / "nodes.txt"
    path.write_text(text, encoding="utf-8")
    if facts is not None:
        path = folder / "lab.toml"
        path.write_text(facts, encoding="utf-8")
    return load_catalog([path]).machines


@pytest.mark.parametrize("new", ["\n   ", " "])
def test_slurms_nodes_alike_are_one_machine_several_times(tmp_path: Path, new: str) -> None:
    text = "\n".join((
        slurm(new=new), slurm(name="n2", state="MIXED", mib=900, new=new),
        slurm(name="n3", state="DOWN*", new=new), slurm(name="n4", state="IDLE+DRAIN", new=new),
        slurm(name="n5", gres="(null)", new=new), slurm(name="o1", gres="gpu:v100:4", new=new),
    ))  # fmt: skip
    hopper, volta = machines(tmp_path, text)
    assert (hopper.device_name, hopper.num_devices, hopper.num_machines) == (
        "A100 SXM4 80GB", 8, 2,
    )  # fmt: skip
    assert (hopper.num_cores, hopper.host_memory_bytes) == (64, 900 * 2**20)
    assert "a100 is taken as A100 SXM4 80GB" in hopper.reading
    assert (volta.num_devices, volta.num_machines, volta.scheduler) == (4, 1, "slurm")
    assert (hopper.queue, volta.queue) == ("gpu/a100", "gpu/v100")


def test_nodes_of_kubernetes_that_take_pods_are_counted(tmp_path: Path) -> None:
    text = kubernetes(
        nvidia(), nvidia(), nvidia(unschedulable=True), nvidia(ready="Unknown"), node({}, {})
    )
    (found,) = machines(tmp_path, text)
    assert (found.name, found.device_name) == ("train", "H100 SXM5 80GB")
    assert (found.num_devices, found.num_machines, found.scheduler) == (8, 2, "kubernetes")
    assert found.host_memory_bytes == 1000 * 2**20
    assert found.reading == ""


def test_devices_of_other_vendors_and_of_typed_nodes_are_read() -> None:
    amd = node({"amd.com/gpu": "8"}, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"})
    typed = node({"nvidia.com/gpu": "4"}, {"node.kubernetes.io/instance-type": "g5.12xlarge"})
    google = node({"nvidia.com/gpu": "1"}, {"cloud.google.com/gke-accelerator": "nvidia-l4"})
    found = [
        (g.device, g.num_devices) for g in node_groups(kubernetes(amd, typed, google), what="")
    ]
    assert found == [("AMD Instinct MI300X OAM", 8), ("g5.12xlarge", 4), ("nvidia-l4", 1)]


def test_a_type_of_node_says_its_device(tmp_path: Path) -> None:
    typed = node({"nvidia.com/gpu": "4"}, {"node.kubernetes.io/instance-type": "g5.12xlarge"})
    (found,) = machines(tmp_path, kubernetes(typed))
    assert found.device_name == "A10G"


def test_slices_of_time_are_of_whole_devices() -> None:
    shared = nvidia(32, "Tesla-T4-SHARED")
    shared["metadata"]["labels"]["nvidia.com/gpu.count"] = "4"
    (group,) = node_groups(kubernetes(shared), what="")
    assert (group.device, group.num_devices) == ("Tesla-T4", 4)


def test_slices_that_are_resources_of_their_own_are_devices(tmp_path: Path) -> None:
    cut = node({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7"},
               {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"})  # fmt: skip
    as_one = nvidia(7, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")
    found = machines(tmp_path, kubernetes(cut, as_one))
    assert {one.device_name for one in found} == {"A100 SXM4 40GB MIG 1g.5gb"}
    assert [one.num_devices for one in found] == [7, 7]


def test_a_chip_of_a_pod_is_a_tpu(tmp_path: Path) -> None:
    chip = node({"google.com/tpu": "4"}, {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"})
    (found,) = machines(tmp_path, kubernetes(chip))
    assert (found.device_name, found.num_devices) == ("TPU v6e (per chip)", 4)


def test_the_network_that_a_file_states_joins_them(tmp_path: Path) -> None:
    facts = '[[clusters]]\nnodes = "nodes.txt"\nnetwork_bytes_per_s = 25e9\n'
    catalog = load_catalog()
    (joined,) = machines(tmp_path, slurm() + slurm(name="n2"), facts)
    link = machine_links(catalog, joined).node
    assert link is not None
    assert link.bytes_per_s == 25e9
    (alone,) = machines(tmp_path, slurm() + slurm(name="n2"))
    links = machine_links(catalog, alone)
    assert links.node is None
    assert any("each works alone" in words for words in links.assumptions)


@pytest.mark.parametrize(("gres", "key"), [("gpu:8", "gpu"), ("gpu:big:8", "big")])
def test_devices_that_a_list_does_not_name_are_named_beside_it(
    tmp_path: Path, gres: str, key: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        machines(tmp_path, slurm(gres=gres))
    assert f'"{key}" = ' in (caught.value.hint or "")
    facts = f'[[clusters]]\nnodes = "nodes.txt"\ndevice_names = {{ {key} = "Instinct MI250X" }}\n'
    (found,) = machines(tmp_path, slurm(gres=gres), facts)
    assert found.device_name == "Instinct MI250X"


@pytest.mark.parametrize("text", [
    slurm(state="DOWN"), kubernetes(), '{"kind": "Node"}', '{"kind": "Node", "items": 3}',
    slurm(mib=-1).replace("CoresPerSocket=32", "CoresPerSocket=many"),
    kubernetes(node({"nvidia.com/gpu": "eight"}, {})),
])  # fmt: skip
def test_a_list_of_nothing_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        node_groups(text, what="nodes.txt")
    assert caught.value.hint
