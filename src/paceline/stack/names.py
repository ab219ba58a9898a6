"""Find the GPU that a user means, by product name, compute capability or LLVM target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from paceline.catalog.architectures import shipped_generations
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, PacelineError, UnknownNameError
from paceline.stack.devices import generation_target, target_of
from paceline.stack.tables import DeviceTarget, KnownGpu, load_tables

_CAPABILITY = re.compile(r"(?:sm_|cc)?(\d{1,2})\.(\d)$|sm_(\d{1,2})(\d)$")
_MAKERS = ("nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct")


def find_gpu(name: str) -> DeviceTarget:
    """The target of the GPU called ``name``.

    Accepts a product name with or without its maker, a compute capability with a dot or after
    ``sm_``, an LLVM target such as ``gfx90a``, a TPU generation, or ``cpu``; and any device of the
    catalogue, such as ``M2 Max`` or ``Arc A770``.

    Raises:
        UnknownNameError: No such GPU.
        InvalidInputError: Several GPUs of different architecture match.
    """
    text = name.strip().lower()
    return _special(text) or _product(name, text)


def _special(text: str) -> DeviceTarget | None:
    """A target that is written out rather than named."""
    tables = load_tables()
    if text == "cpu":
        rows = (row for row in tables.name_targets if row.kind == "cpu" and not row.name_has)
        return next(rows).target
    targets = [gpu.target for gpu in tables.gpus] + [row.target for row in tables.name_targets]
    generations = (generation_target(one, one.code) for one in shipped_generations())
    targets += filter(None, generations)
    known = {target.code: target for target in reversed(targets) if target.code}
    if text in known:
        return known[text]
    match = _CAPABILITY.match(text)
    if match is None:
        return None
    capability = ".".join(filter(None, match.groups()))
    return known.get(capability) or _plain_cuda(capability, known)


def _plain_cuda(capability: str, known: Mapping[str, DeviceTarget]) -> DeviceTarget:
    """A capability that no product in the table has, driven like any NVIDIA GPU.

    Raises:
        UnknownNameError: Nor has any product its generation.
    """
    capabilities = [code for code, target in known.items() if target.platform == "cuda"]
    majors = {code.split(".")[0] for code in capabilities}
    if capability.split(".")[0] not in majors:
        raise UnknownNameError.from_name(
            "compute capability", capability, sorted(capabilities), command="paceline devices"
        )
    row = next(r for r in load_tables().name_targets if r.kind == "gpu" and not r.name_has)
    return replace(row.target, code=capability)


def _product(name: str, text: str) -> DeviceTarget:
    wanted = _key(text)
    gpus = load_tables().gpus
    exact = [gpu for gpu in gpus if _key(gpu.name) == wanted]
    part = exact or [gpu for gpu in gpus if wanted and wanted in _key(gpu.name)]
    return _only_target(name, part) if part else _catalogued(name)


def _catalogued(name: str) -> DeviceTarget:
    """The target of a device that the catalogue has, and that is no card of the software's tables.

    Raises:
        UnknownNameError: Nor has the catalogue it, or nobody says how software drives it.
    """
    try:
        device = find_device(load_catalog(), name)
    except PacelineError:
        known = [_without_maker(gpu.name) for gpu in load_tables().gpus]
        raise UnknownNameError.from_name("GPU", name, known, command="paceline devices") from None
    target = target_of(device)
    if target is None:
        raise UnknownNameError(
            f"no software on record drives {device.name}",
            hint="`paceline stack resolve --gpu NAME` answers for GPUs, processors, TPUs and Gaudi",
        )
    return target


def _only_target(name: str, gpus: list[KnownGpu]) -> DeviceTarget:
    if len({(gpu.target.platform, gpu.target.code) for gpu in gpus}) > 1:
        listed = ", ".join(gpu.name for gpu in gpus[:6])
        raise InvalidInputError(
            f"`{name}` could be several GPUs of different architecture",
            hint=f"name one: {listed}",
        )
    return gpus[0].target


def _without_maker(name: str) -> str:
    return " ".join(word for word in name.split() if word.lower() not in _MAKERS)


def _key(text: str) -> str:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "".join(word for word in words if word not in _MAKERS)
