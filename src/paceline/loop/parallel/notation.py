"""The planner's strategy strings, read without the planner.

``dp4.tp2:device@1f1b/mb8+zero1+recompute-block``: axes of a mesh, outermost first; the order in
which microbatches pass stages; their number; options; exceptions for single modules after ``;``.
A test holds this reader against the planner's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import LoopError

AXES = ("dp", "fsdp", "tp", "pp", "cp", "ep", "cfg")
_HEAD = re.compile(
    r"^(?P<mesh>[a-z0-9.:]+)(?:@(?P<kind>gpipe|1f1b|interleaved|zbh1)(?P<chunks>[0-9]{1,4})?)?"
    r"(?:/mb(?P<microbatches>[0-9]{1,7}))?(?P<options>(?:\+[a-z0-9-]+)*)$"
)
_AXIS = re.compile(r"^([a-z]+)([0-9]{1,9})(?::(?:auto|device|node))?$")
_OPTION = re.compile(
    r"^(zero[123]|recompute-(?:none|selective|experts|block|full)|sp|ulysses[0-9]{0,6}|offload|"
    r"single-process|parameter-server|none)$"
)
_HINT = "write strategies like `dp8`, `dp4+zero1` or `pp2.dp4@1f1b/mb8`"

#: Precisions that PyTorch has a switch for.
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16")
#: Precisions that Keras has, and its name for them; None for its own.
KERAS_POLICIES = {"fp32": None, "tf32": None, "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}


class Strategy(NamedTuple):
    """A strategy as the loop sees it.

    Attributes:
        text: As written.
        axes: Name and size of each axis above 1, outermost first.
        schedule: Order of microbatches; ``plain`` without stages.
        chunks: Of an interleaved one, stages per rank.
        microbatches: Per optimizer step.
        sharding: ``none``, or ``zero1`` to ``zero3``.
        recompute: ``none``, ``selective``, ``experts``, ``block`` or ``full``.
        others: Options, and exceptions for single modules, that name something else.
    """

    text: str
    axes: tuple[tuple[str, int], ...]
    schedule: str
    chunks: int
    microbatches: int
    sharding: str
    recompute: str
    others: tuple[str, ...]


def size(strategy: Strategy, name: str) -> int:
    """Ranks along an axis; 1 where the mesh has none."""
    return dict(strategy.axes).get(name, 1)


def parse(text: str) -> Strategy:
    """Read a strategy string.

    Raises:
        LoopError: Not in the notation.
    """
    head, *placements = text.strip().split(";")
    match = _HEAD.match(head)
    if match is None:
        raise LoopError("`%s` is not a strategy" % text[:80], _HINT)
    axes = _axes(match["mesh"], text)
    options = match["options"].split("+")[1:]
    unknown = [one for one in options if not _OPTION.match(one)]
    if unknown:
        raise LoopError("`%s` has no meaning in `%s`" % (unknown[0], text[:80]), _HINT)
    sharding = [one for one in options if one.startswith("zero")] or ["none"]
    recompute = [one[10:] for one in options if one.startswith("recompute-")] or ["none"]
    if len(sharding) > 1 or len(recompute) > 1:
        raise LoopError("`%s` contradicts itself" % text[:80], _HINT)
    stages = dict(axes).get("pp", 1)
    known = {"none", sharding[0], "recompute-" + recompute[0]}
    kind = match["kind"] or ("1f1b" if stages > 1 else "plain")
    return Strategy(
        text=text.strip(),
        axes=axes,
        schedule=kind,
        chunks=int(match["chunks"] or 2) if kind == "interleaved" else 1,
        microbatches=int(match["microbatches"] or (2 * stages if stages > 1 else 1)),
        sharding=sharding[0],
        recompute=recompute[0],
        others=tuple([one for one in options if one not in known] + placements),
    )


def _axes(mesh: str, text: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for part in mesh.split("."):
        match = _AXIS.match(part)
        if match is None or match[1] not in AXES or int(match[2]) < 1:
            raise LoopError("`%s` is no axis of `%s`" % (part, text[:80]), _HINT)
        if int(match[2]) > 1:
            found.append((match[1], int(match[2])))
    return tuple(found)


def refusals(strategy: Strategy, precision: str | None = None) -> tuple[str, ...]:
    """What of a strategy and a precision the loop has no engine for, each as a reason."""
    found: list[str] = []
    reasons = {
        "cp": "context parallel exchanges keys and values inside attention, which has no engine",
        "ep": "expert parallel moves tokens inside the model's own layer of experts",
        "cfg": "the halves of guidance belong to inference",
    }
    found += [reasons[name] for name, _ in strategy.axes if name in reasons]
    if size(strategy, "tp") > 1 and size(strategy, "pp") > 1:
        found.append("a stage is cut out of a traced graph, whose weights `tp` cannot split")
    if strategy.schedule == "zbh1":
        found.append("`zbh1` splits backward by weight, which traced stages do not")
    if strategy.schedule == "interleaved" and strategy.microbatches % size(strategy, "pp"):
        found.append("`interleaved` needs a multiple of %d microbatches" % size(strategy, "pp"))
    if strategy.recompute in ("selective", "experts"):
        found.append("parts of blocks are recomputed, and the loop wraps whole blocks")
    words = {
        "sp": "`sp` splits what lies between pairs along the sequence",
        "offload": "`offload` keeps the optimizer on the host",
        "single-process": "`single-process` is PyTorch's old DataParallel",
        "parameter-server": "`parameter-server` is no engine of PyTorch",
    }
    if precision is not None and precision not in PRECISIONS:
        found.append("precision `%s` needs a library of its own" % precision)
    for one in strategy.others:
        found.append(words.get(one, "`%s` has no engine here" % one))
    return tuple(found)


def keras_refusals(strategy: Strategy, precision: str | None = None) -> tuple[str, ...]:
    """What of a strategy and a precision Keras' own data parallelism does not run, as reasons."""
    found: list[str] = []
    is_split = any(name != "dp" for name, _ in strategy.axes) or strategy.sharding != "none"
    if is_split or strategy.others or strategy.recompute != "none":
        found.append("Keras' own distribution keeps the whole model on each device")
    if strategy.microbatches > 1:
        found.append("its optimizer gathers microbatches (`gradient_accumulation_steps`)")
    if precision is not None and precision not in KERAS_POLICIES:
        found.append("precision `%s` is no policy of Keras" % precision)
    return tuple(found)
