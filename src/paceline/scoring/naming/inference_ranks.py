"""How a row of inference says that its devices share a model, and what each rank then runs."""

from __future__ import annotations

import re

from paceline.parallelism.split import SplitShape
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.serving import engine_of
from paceline.scoring.naming.stated_degrees import Degrees, sharding_of, stated_degrees
from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines

#: Each device has a model of its own.
WHOLE = SplitShape.of_engine()

#: Degrees of xDiT, as its command line or plain words have them.
_SEQUENCE = {
    name: re.compile(rf"(?<![a-z]){words}(?:[_ -](?:parallel|attention))?"
                     r"(?:[_ -](?:degree|size))?\s*[=:]?\s*(\d+)", re.IGNORECASE)
    for name, words in (
        ("ring", "ring"),
        ("ulysses", "(?:deepspeed[_ -])?ulysses"),
        ("guidance", "(?:cfg|classifier[_ -]free[_ -]guidance)"),
        ("patches", "pipefusion"),
    )
}  # fmt: skip
_NAMES_DEGREE = re.compile(
    r"(?<![a-z])(?:tensor|expert|data|pipeline|context|[tedpc]p|ring|ulysses|cfg)[a-z_ -]*[=: ]*\d",
    re.IGNORECASE,
)
_NOTHING = ("", "none")
#: Devices that hold layers one after the other; and words without a number, which mean all devices.
_STAGES = re.compile(
    r"(?:layers over|pp ?=?|pipeline[ _-]parallel(?:ism|[_ ]size)? ?=?) ?(?P<stages>\d+)|"
    r"(?P<all>pipeline[ _-]parallel(?:ism)?|pp)",
    re.IGNORECASE,
)
_ALL = re.compile(r"(tensor|expert)[ _-]parallel(ism)?|[te]p", re.IGNORECASE)


def stages_of(row: Row) -> int:
    """Devices that hold the layers of a served model one after the other.

    Of an engine that shares no layer, tensor ranks are such devices too.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "m", "gpu": "g", "parallelism": "layers over 4", "n_gpus": "4"}
    >>> stages_of(parse_row(row))
    4
    >>> stages_of(parse_row(row | {"parallelism": "tp=4", "framework": "llama.cpp"}))
    4
    """
    found = _STAGES.fullmatch(row.parallelism.strip())
    if found is None:
        engine = engine_of(row.framework)
        is_split = engine is not None and engine.splits_layers
        return min(stated_degrees(row.parallelism).tp, row.num_devices) if is_split else 1
    return row.num_devices if found["all"] else min(int(found["stages"]), row.num_devices)


def split_of(row: Row) -> SplitShape:
    """How the devices of a row of inference share the model.

    Degrees that make less than all devices leave replicas that do not talk.

    Raises:
        UnresolvedRowError: It says nothing that is known, or its degrees and devices do not agree.

    >>> from paceline.scoring.rows import parse_row
    >>> def of(text, num_gpus):
    ...     row = {"model": "m", "gpu": "g", "parallelism": text, "n_gpus": str(num_gpus)}
    ...     return split_of(parse_row(row))
    >>> of("DP=2 TP=4", 8) == SplitShape.of_engine(tensor=4)
    True
    >>> of("data_parallel=1 expert_parallel=8 tensor_parallel=1", 8).whole_experts
    True
    >>> of("ring_degree=2 ulysses_degree=1", 2) == SplitShape(ring=2)
    True
    """
    text = row.parallelism.strip()
    if text.lower() in _NOTHING:
        return WHOLE
    num_devices = row.num_devices
    if row.scenario and stages_of(row) > 1:
        return WHOLE
    if row.scenario and _ALL.fullmatch(text):
        return SplitShape.of_engine(tensor=num_devices, whole_experts=text[:1].lower() == "e")
    is_stated = _NAMES_DEGREE.search(text)
    if num_devices > 1 and not (is_stated or text.lower().startswith("dp")):
        raise _unknown(row)
    shape = _sequence_ranks(row) or _served_ranks(row, stated_degrees(text), num_devices)
    if num_devices % shape.num_ranks:
        raise UnresolvedRowError(
            f"the parallelism `{text}` needs {shape.num_ranks} devices, and the row has "
            f"{num_devices}"
        )
    return shape


def _sequence_ranks(row: Row) -> SplitShape | None:
    found = {name: one.search(row.parallelism) for name, one in _SEQUENCE.items()}
    degrees = {name: max(int(match[1]), 1) for name, match in found.items() if match}
    if not degrees:
        return None
    rest = row.parallelism
    for one in _SEQUENCE.values():
        rest = one.sub("", rest)
    others = stated_degrees(rest)
    if degrees.pop("patches", 1) > 1 or others.splits_model:
        raise _unknown(row)
    return SplitShape(
        ring=degrees.get("ring", 1), ulysses=degrees.get("ulysses", 1),
        guidance=degrees.get("guidance", 1),
    )  # fmt: skip


def _served_ranks(row: Row, degrees: Degrees, num_devices: int) -> SplitShape:
    """Ranks of an engine; expert ranks are the tensor ranks of all replicas.

    A row that states expert ranks alone means tensor ranks that keep whole experts: an engine has
    no other way to run them on so many devices without replicas.
    """
    if degrees.pp * degrees.cp > 1 or sharding_of(row.parallelism) != "none":
        raise _unknown(row)
    tensor, replicas = _whole_chips(row, degrees.tp), degrees.dp
    if replicas is not None and tensor * replicas not in (num_devices, 1):
        raise UnresolvedRowError(
            f"the parallelism `{row.parallelism}` needs {tensor * replicas} devices, and the row "
            f"has {num_devices}"
        )
    if degrees.ep == 1:
        return SplitShape.of_engine(tensor=tensor)
    if tensor == 1 and replicas in (None, 1):
        return SplitShape.of_engine(tensor=degrees.ep, whole_experts=True)
    if degrees.ep != tensor * (replicas or 1):
        raise UnresolvedRowError(
            f"the parallelism `{row.parallelism}`: expert ranks are the tensor ranks of all "
            f"replicas, {tensor * (replicas or 1)} and not {degrees.ep}"
        )
    if replicas is not None and replicas > 1:
        # `SplitShape.of_engine` has their passes; published rows take two to eight times as long.
        raise UnresolvedRowError(
            "how replicas wait for each other that share experts and not attention is not modelled"
        )
    return SplitShape.of_engine(tensor=tensor, whole_experts=True)


def _whole_chips(row: Row, tensor: int) -> int:
    """Devices that share a model, where ranks are parts of chips that programs see as devices.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "m", "gpu": "Google TPU v7x", "parallelism": "tp=8", "n_gpus": "4"}
    >>> split_of(parse_row(row)) == SplitShape.of_engine(tensor=4)
    True
    """
    parts = next(fitting_lines("chip_parts.csv", {"pattern": row.gpu}), {"parts": "1"})
    is_part = tensor == int(parts["parts"]) * row.num_devices
    return row.num_devices if is_part else tensor


def _unknown(row: Row) -> UnresolvedRowError:
    return UnresolvedRowError(
        f"the parallelism `{row.parallelism}` is not predicted from a published row"
    )
