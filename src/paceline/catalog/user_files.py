"""The user's own devices, offers and machines, from a YAML or TOML file.

The one place of the catalogue where untrusted text is read: files are small, loaded without
constructing objects as `paceline.documents` reads them, and checked field by field.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paceline.catalog.architectures import Generation, generation_of, with_entries
from paceline.catalog.cluster_nodes import NodeGroup, is_node_list, node_groups
from paceline.catalog.entities import (
    Catalog,
    Device,
    DeviceClass,
    DeviceKind,
    Machine,
    Offer,
    Source,
)
from paceline.catalog.lookup import find_device, variant_note
from paceline.document_keys import unknown_key
from paceline.documents import parse_yaml
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.reading import on_its_line, read_text

_MAX_FILE_BYTES = 256_000
#: Kubernetes lists every image of every node.
_MAX_LIST_BYTES = 64_000_000
_EXAMPLE = "see docs/how-to/own-devices.md for an example"
_NODES = "write it with `kubectl get nodes -o json` or `scontrol show nodes`"

_Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")]
_Text = Annotated[str, Field(max_length=2000)]
_Positive = Annotated[float, Field(gt=0, lt=1e24, allow_inf_nan=False)]
_Frac = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Count = Annotated[int, Field(gt=0, lt=10**7)]
AttentionFamily = Literal["flash", "vendor", "memory-efficient"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _DeviceEntry(_Strict):
    name: _Name
    family: _Name | None = None
    vendor: _Name = "own"
    architecture: _Text = ""
    kind: DeviceKind = "gpu"
    device_class: DeviceClass = "workstation"
    compute_capability: Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")] | None = None
    gfx_target: Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,5}$")] | None = None
    year: _Count | None = None
    num_sms: _Count | None = None
    boost_clock_hz: _Positive | None = None
    base_clock_hz: _Positive | None = None
    peak_flop_per_s: dict[_Name, _Positive]
    memory_bytes: _Positive
    memory_type: _Text = ""
    memory_bytes_per_s: _Positive
    l2_bytes: _Positive | None = None
    tdp_w: _Positive | None = None
    pcie_bytes_per_s: _Positive | None = None
    fabric: _Name | None = None
    fabric_bytes_per_s: _Positive | None = None
    form_factor: _Text = ""
    cooling: _Text = ""
    price_usd: _Positive | None = None
    price_on: date | None = None
    note: _Text = ""


class _GenerationEntry(_Strict):
    architecture: _Name
    code: Annotated[str, Field(pattern=r"^(\d{1,2}\.\d|gfx[0-9a-f]{3,5})?$")] = ""
    like: _Text | None = None
    platform: _Name | None = None
    software_code: _Name | None = None
    system: _Name | None = None
    first_device_year: _Count | None = None
    num_lanes: _Count | None = None
    num_schedulers: _Count | None = None
    batched_tile: tuple[_Count, _Count] | None = None
    attention_slowdown: dict[AttentionFamily, _Positive] | None = None


class _OfferEntry(_Strict):
    name: _Name
    cloud: _Name = "own"
    region: _Text = ""
    device: _Name
    num_devices: _Positive = 1.0
    num_vcpus: _Count | None = None
    host_memory_bytes: _Positive | None = None
    interconnect: _Text = ""
    network_bytes_per_s: _Positive | None = None
    network_kind: _Text = ""
    usd_per_hour: _Positive
    spot_usd_per_hour: _Positive | None = None
    priced_on: date
    interruption_frac_per_month: tuple[_Frac, _Frac] | None = None
    note: _Text = ""


class _MachineEntry(_Strict):
    name: _Name
    device: _Name | None = None
    num_devices: Annotated[int, Field(ge=0, lt=10**6)] = 0
    cpu_device: _Name | None = None
    num_cores: _Count | None = None
    host_memory_bytes: _Positive | None = None
    interconnect: _Name | None = None
    price_usd: _Positive | None = None
    power_supply_w: _Positive | None = None
    num_free_slots: Annotated[int, Field(ge=0, lt=100)] | None = None
    has_airflow_for_passive: bool | None = None
    storage_read_bytes_per_s: _Positive | None = None
    network_bytes_per_s: _Positive | None = None
    network_kind: Literal["", "infiniband", "roce"] = ""
    box: _Name | None = None
    num_machines: _Count = 1
    scheduler: Literal["", "slurm", "kubernetes"] = ""


class _ClusterEntry(_Strict):
    nodes: Path
    device_names: dict[_Name, _Name] = {}
    interconnect: _Name | None = None
    network_bytes_per_s: _Positive | None = None
    network_kind: Literal["", "infiniband", "roce"] = ""


class _File(_Strict):
    generations: list[_GenerationEntry] = []
    devices: list[_DeviceEntry] = []
    offers: list[_OfferEntry] = []
    machines: list[_MachineEntry] = []
    clusters: list[_ClusterEntry] = []


class _Named(Protocol):
    @property
    def name(self) -> str:
        """By which a row replaces another."""


_Entity = TypeVar("_Entity", bound=_Named)


def with_user_file(catalog: Catalog, path: Path) -> Catalog:
    """``catalog`` with the rows of one file added; a row of the same name is replaced.

    Raises:
        InvalidInputError: The file cannot be read, is not what it should be, or names a device
            that is neither in the catalogue nor in the file.
    """
    entries = _validated(_plain_data(path), path)
    generations = _generations(entries.generations, catalog, path)
    devices = _merged(catalog.devices, tuple(_device(e, path) for e in entries.devices))
    devices = tuple(
        replace(one, generation=generation_of(generations, one.architecture, one.code))
        for one in devices
    )
    known = replace(catalog, devices=devices, generations=generations)
    listed = [machine for cluster in entries.clusters for machine in _listed(cluster, known, path)]
    return replace(
        known,
        offers=_merged(catalog.offers, tuple(_offer(e, known, path) for e in entries.offers)),
        machines=_merged(
            catalog.machines,
            (*listed, *(_machine(entry, known, path) for entry in entries.machines)),
        ),
    )


def _plain_data(path: Path) -> Mapping[str, Any]:
    text = read_text(path, what="file", most_bytes=_MAX_LIST_BYTES, hint=_EXAMPLE)
    if is_node_list(text):
        return {"clusters": [{"nodes": path.name}]}
    if len(text) > _MAX_FILE_BYTES:
        raise InvalidInputError(f"{path} has more than {_MAX_FILE_BYTES / 1e3:g} kB", hint=_EXAMPLE)
    try:
        is_toml = path.suffix.lower() == ".toml"
        data = tomllib.loads(text) if is_toml else parse_yaml(text, what=f"file {path}")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be parsed: {error}", hint=_EXAMPLE) from None
    if not isinstance(data, dict):
        raise InvalidInputError(
            f"{path} holds no table of devices, generations, offers or machines", hint=_EXAMPLE
        )
    return data


def _validated(data: Mapping[str, Any], path: Path) -> _File:
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        if unknown := unknown_key(errors, _File.model_json_schema(), str(path)):
            raise unknown from None
        first = errors[0]
        where = ".".join(str(part) for part in first["loc"])
        more = error.error_count() - 1
        also = f" (and {more} more)" if more else ""
        raise InvalidInputError(f"{path}: {where}: {first['msg']}{also}", hint=_EXAMPLE) from None


def _generations(
    entries: list[_GenerationEntry], catalog: Catalog, path: Path
) -> tuple[Generation, ...]:
    try:
        return with_entries(catalog.generations, [entry.model_dump() for entry in entries])
    except KeyError as error:
        raise InvalidInputError(
            f"{path}: a generation is like {error}, which is not known",
            hint="name the compute capability or LLVM target of one above it, such as 9.0",
        ) from None


def _device(entry: _DeviceEntry, path: Path) -> Device:
    fields = entry.model_dump()
    fields["family"] = entry.family or entry.name
    return Device(
        **fields,
        is_default_variant=entry.family is None,
        measured_bf16_flop_per_s=None,
        sources=(Source(text=str(path.name), confidence="user"),),
    )


def _offer(entry: _OfferEntry, catalog: Catalog, path: Path) -> Offer:
    fields = entry.model_dump(exclude={"name", "device", "num_devices"})
    instance_type = entry.name.removeprefix(f"{entry.cloud}/")
    return Offer(
        **fields,
        name=f"{entry.cloud}/{instance_type}",
        instance_type=instance_type,
        device_name=_device_name(catalog, entry.device, path),
        accelerator=entry.device,
        num_devices=entry.num_devices,
        has_rdma=bool(entry.network_kind),
        spot_on=entry.priced_on if entry.spot_usd_per_hour else None,
        is_retired=False,
        source=Source(text=path.name, read_on=entry.priced_on, confidence="user"),
    )


def _machine(entry: _MachineEntry, catalog: Catalog, path: Path) -> Machine:
    fields = entry.model_dump(exclude={"device", "cpu_device"})
    device_name = _device_name(catalog, entry.device, path)
    return Machine(
        **fields,
        device_name=device_name,
        reading=_reading(catalog, entry.device, device_name),
        cpu_device_name=_device_name(catalog, entry.cpu_device, path),
    )


def _listed(entry: _ClusterEntry, catalog: Catalog, path: Path) -> Iterator[Machine]:
    """Machines of a scheduler's list of nodes, which stands beside the file that names it."""
    nodes = path.parent / entry.nodes
    text = read_text(nodes, what="list of nodes", most_bytes=_MAX_LIST_BYTES, hint=_NODES)
    for group in node_groups(text, what=str(nodes)):
        names = entry.device_names
        spelled = names.get(group.device) or names.get(group.name) or group.device
        device_name = _listed_device(catalog, spelled, group, nodes)
        yield Machine(
            name=group.name,
            device_name=device_name,
            reading=_reading(catalog, spelled, device_name),
            num_devices=group.num_devices,
            num_cores=group.num_cores,
            host_memory_bytes=group.host_memory_bytes,
            interconnect=entry.interconnect,
            network_bytes_per_s=entry.network_bytes_per_s,
            network_kind=entry.network_kind,
            num_machines=group.num_machines,
            scheduler=group.scheduler,
            queue=group.queue,
        )


def _listed_device(catalog: Catalog, spelled: str, group: NodeGroup, nodes: Path) -> str:
    try:
        return find_device(catalog, spelled).name
    except UnknownNameError:
        offers = (one for one in catalog.offers if spelled and one.instance_type == spelled)
        offer = next(offers, None)
        if offer is not None and offer.device_name is not None:
            return offer.device_name
    raise InvalidInputError(
        f"{nodes}: nodes of `{group.name}` have `{spelled}`, which is no device that is known"
        if spelled
        else f"{nodes}: nodes of `{group.name}` do not say which device they have",
        hint=f'say which in a file for --facts: `[[clusters]]`, `nodes = "{nodes.name}"`, '
        f'`device_names = {{ "{group.device or group.name}" = "A100 SXM4 80GB" }}`',
    )


def _reading(catalog: Catalog, spelled: str | None, device_name: str | None) -> str:
    """Which variant a short name was taken for; empty where it is no name of several."""
    if not spelled or device_name is None:
        return ""
    try:
        return variant_note(catalog, spelled, find_device(catalog, device_name))
    except UnknownNameError:
        return ""


def _device_name(catalog: Catalog, name: str | None, path: Path) -> str | None:
    if not name:
        return None
    with on_its_line(path, name):
        return find_device(catalog, name).name


def _merged(old: Sequence[_Entity], new: tuple[_Entity, ...]) -> tuple[_Entity, ...]:
    replaced = {entity.name for entity in new}
    return (*(entity for entity in old if entity.name not in replaced), *new)
