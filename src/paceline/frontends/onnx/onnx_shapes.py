"""Operators of ONNX that make, move, cut and index tensors.

Standard library and torch only. What only sizes decide is computed beforehand.
"""

import math

import torch
import torch.nn.functional as F
from onnx_file import Refused, dtype_of
from onnx_model import checked, constant, is_small

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _constant(call):
    value = call.attribute("value")
    if isinstance(value, dict):
        return constant(value)
    for name in ("value_int", "value_ints", "value_float", "value_floats"):
        if name in call.attributes:
            dtype = torch.int64 if "int" in name else torch.float32
            return torch.tensor(call.attribute(name), dtype=dtype)
    raise Refused("a constant of it is no tensor of numbers", "onnx-op")


def _filled(call, _shape):
    shape = checked(call.ints(0), call.title())
    value = call.attribute("value")
    one = torch.zeros(1) if value is None else constant(value)
    device = "cpu" if is_small(shape) else "meta"
    return torch.full(shape, one.reshape(-1)[0].item(), dtype=one.dtype, device=device)


def _shape(call, x):
    start, end = call.attribute("start", 0), call.attribute("end")
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


def _size(call, x):
    return torch.tensor(x.numel(), dtype=torch.int64)


def _range(call, *_):
    start, limit, step = (call.known(n).reshape(()) for n in range(3))
    if step.item() == 0:
        raise Refused("a range of it has steps of zero")
    count = max(0, math.ceil((limit.item() - start.item()) / step.item()))
    checked((count,), call.title())
    device = "cpu" if is_small((count,)) else "meta"
    numbers = (start.item(), start.item() + count * step.item(), step.item())
    return torch.arange(*numbers, dtype=start.dtype, device=device)[:count]


def _reshape(call, x, _shape):
    wanted = call.ints(1)
    if not call.attribute("allowzero", 0):
        wanted = [x.shape[n] if one == 0 else one for n, one in enumerate(wanted)]
    stored = call.model.replaced
    if stored and x.is_meta and x.ndim and wanted and wanted[0] == stored[0] != x.shape[0]:
        # A file with a fixed batch repeats it here.
        wanted[0] = x.shape[0] if -1 in wanted[1:] or _fits(x, wanted) else wanted[0]
    checked([one for one in wanted if one != -1], call.title())
    return call.compute(lambda one: one.reshape(wanted), x)


def _fits(x, wanted):
    return x.numel() == x.shape[0] * math.prod(wanted[1:])


def _flatten(call, x):
    axis = call.attribute("axis", 1)
    rows = math.prod(x.shape[: axis % x.ndim if axis < 0 else axis])
    return call.compute(lambda one: one.reshape(rows, one.numel() // max(rows, 1)), x)


def _squeeze(call, x, *_):
    return squeezed(call, x, call.ints(1, "axes"))


def squeezed(call, x, axes):
    """A tensor without some of its axes; without all of one place if None."""
    if axes is None:
        axes = [n for n, one in enumerate(x.shape) if one == 1]
    axes = {a % x.ndim for a in axes} if x.ndim else set()
    shape = [one for n, one in enumerate(x.shape) if n not in axes]
    return call.compute(lambda one: one.reshape(shape), x)


def _unsqueeze(call, x, *_):
    axes = call.ints(1, "axes")
    ndim = x.ndim + len(axes)
    for axis in sorted(a % ndim for a in axes):
        x = call.compute(lambda one, at=axis: one.unsqueeze(at), x)
    return x


def _transpose(call, x):
    order = call.attribute("perm") or list(range(x.ndim))[::-1]
    return call.compute(lambda one: one.permute(order), x)


def _expand(call, x, _shape):
    wanted = checked(call.ints(1), call.title())
    shape = torch.broadcast_shapes(tuple(x.shape), _freed(call, x, wanted))
    checked(shape, call.title())
    return call.compute(lambda one: one.expand(shape), x)


def _freed(call, x, wanted):
    stored = call.model.replaced
    if stored and x.is_meta and wanted and wanted[0] == stored[0] and len(wanted) == x.ndim:
        return (1, *wanted[1:]) if x.shape[0] == stored[1] else wanted
    return wanted


def tiled(call, x, _repeats):
    """A tensor several times along each dim, as the second input says."""
    repeats = checked(call.ints(1), call.title())
    checked([a * b for a, b in zip(x.shape, repeats)], call.title())
    return call.compute(lambda one: one.repeat(repeats), x)


def _concat(call, *tensors):
    return joined(call, tensors, call.attribute("axis", 0))


def joined(call, tensors, axis):
    """Tensors one after the other along an axis."""
    if any(one.is_meta for one in tensors):
        return torch.cat([call.on_meta(one) for one in tensors], axis)
    return call.compute(lambda *all_: torch.cat(all_, axis), *tensors)


def _slice(call, x, *_):
    starts, ends = call.ints(1, "starts"), call.ints(2, "ends")
    axes, steps = call.ints(3, "axes"), call.ints(4)
    axes = list(range(len(starts))) if axes is None else [a % x.ndim for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps):
        size = x.shape[axis]
        if step < 0:
            first, stop = _bounds(start, end, size)
            places = torch.arange(first, stop, step, dtype=torch.int64)
            x = call.compute(lambda one, at=axis, p=places: one.index_select(
                at, p.to(one.device)), x)  # fmt: skip
        else:
            # The ends of a dim are often given as the largest of all numbers.
            start, end = (min(max(one, -size - 1), size) for one in (start, end))
            cut = [slice(None)] * axis + [slice(start, end, min(step, max(size, 1)))]
            x = call.compute(lambda one, c=tuple(cut): one[c], x)
    return x


def _bounds(start, end, size):
    """First and last place of a slice that runs backwards."""
    first = min(start + size if start < 0 else start, size - 1)
    stop = end + size if -size <= end < 0 else end
    return first, max(stop, -1)


def _split(call, x, *_):
    axis = call.attribute("axis", 0)
    sizes, extent = call.ints(1, "split"), x.shape[axis]
    if sizes is None:
        count = call.attribute("num_outputs", len(call.node["outputs"]))
        part = -(-extent // max(count, 1))
        sizes = [min(part, extent - n * part) for n in range(count)]
    checked(sizes, call.title())
    return tuple(call.compute(lambda one: tuple(one.split(sizes, axis)), x))


def _pad(call, x, *_):
    pads, mode = call.ints(1, "pads"), call.attribute("mode", "constant")
    axes = call.ints(3)
    axes = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    both = {a: (pads[n], pads[n + len(axes)]) for n, a in enumerate(axes)}
    flat = [one for axis in reversed(range(x.ndim)) for one in both.get(axis, (0, 0))]
    if mode != "constant":
        while len(flat) > 2 and flat[-2:] == [0, 0]:
            flat = flat[:-2]
        return _padded_by_its_own(call, x, flat, _MODES[mode])
    grown = [n + sum(both.get(a, (0, 0))) for a, n in enumerate(x.shape)]
    checked(grown, call.title())
    value = call.number(2, "value", 0.0)
    value = value if x.dtype.is_floating_point else int(value)
    return call.compute(lambda one: F.pad(one, flat, value=value), x)


def _padded_by_its_own(call, x, flat, mode):
    x, extra = call.on_meta(x), 0
    while x.ndim < len(flat) // 2 + 2:
        x, extra = x.unsqueeze(0), extra + 1
    made = F.pad(x, flat, mode=mode)
    return made.reshape(made.shape[extra:])


def _gather(call, x, places):
    axis = call.attribute("axis", 0) % x.ndim
    if x.is_meta and axis == 0 and x.ndim == 2 and x.dtype.is_floating_point and places.ndim:
        # As a table of embeddings is read.
        return F.embedding(call.on_meta(places).long(), x)
    if not places.is_meta and places.ndim == 0 and x.is_meta:
        return x.select(axis, int(places.item()))
    shape = [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]]
    if not x.is_meta and not places.is_meta:
        limit = x.shape[axis]
        places = places.long() if limit == 0 else places.long() % limit
        return call.compute(
            lambda one, p: one.index_select(axis, p.reshape(-1)).reshape(shape), x, places
        )
    x, places = call.on_meta(x), call.on_meta(places)
    return x.index_select(axis, places.reshape(-1).long()).reshape(shape)


def _gather_elements(call, x, places):
    return call.on_meta(x).gather(call.attribute("axis", 0), call.on_meta(places).long())


def _gather_nd(call, x, places):
    skipped, depth = call.attribute("batch_dims", 0), places.shape[-1]
    x, places = call.on_meta(x), call.on_meta(places).long()
    if skipped:
        shape = [*places.shape[:-1], *x.shape[skipped + depth :]]
        flat = x.reshape(*x.shape[:skipped], -1, *x.shape[skipped + depth :])
        count = math.prod(places.shape[skipped:-1])
        index = places[..., 0].reshape(*places.shape[:skipped], count)
        index = index.reshape(*index.shape, *[1] * (flat.ndim - skipped - 1))
        index = index.expand(*index.shape[: skipped + 1], *flat.shape[skipped + 1 :])
        return flat.gather(skipped, index).reshape(shape)
    return x[tuple(places[..., n] for n in range(depth))]


def _scatter_elements(call, x, places, updates):
    x, places, updates = (call.on_meta(one) for one in (x, places, updates))
    axis, how = call.attribute("axis", 0), call.attribute("reduction", "none")
    if how == "none":
        return x.scatter(axis, places.long(), updates)
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    return x.scatter_reduce(axis, places.long(), updates, names[how])


def _scatter_nd(call, x, places, updates):
    x, places, updates = (call.on_meta(one) for one in (x, places, updates))
    index = tuple(places[..., n].long() for n in range(places.shape[-1]))
    return x.index_put(index, updates, accumulate=call.attribute("reduction", "none") != "none")


def _to_space(call, x):
    size = call.attribute("blocksize")
    x = call.on_meta(x)
    if call.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, size)
    batch, channels, height, width = x.shape
    x = x.reshape(batch, size, size, channels // size**2, height, width)
    return x.permute(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // size**2, height * size, width * size
    )


def _to_depth(call, x):
    return F.pixel_unshuffle(call.on_meta(x), call.attribute("blocksize"))


def _one_hot(call, places, depth, values):
    axis, count = call.attribute("axis", -1), call.ints(1)[0]
    shape = list(places.shape)
    axis = axis + len(shape) + 1 if axis < 0 else axis
    shape.insert(axis, count)
    checked(shape, call.title())
    hits = torch.arange(count, device="meta").reshape([-1 if n == axis else 1
                                                       for n in range(len(shape))])  # fmt: skip
    return (call.on_meta(places).unsqueeze(axis) == hits).to(values.dtype)


def _eye_like(call, x):
    code = call.attribute("dtype")
    dtype = x.dtype if code is None else getattr(torch, dtype_of(code))
    shape = tuple(x.shape)
    return call.compute(lambda one: torch.eye(*shape, dtype=dtype, device=one.device), x)


def _triangle(call, x, *_):
    offset = call.number(1, None, 0)
    cut = torch.triu if call.attribute("upper", 1) else torch.tril
    return call.compute(lambda one: cut(one, int(offset)), x)


def _nonzero(call, x):
    if x.is_meta:
        raise Refused(
            "its operator `NonZero` makes as many results as its data says, which a trace has not",
            "onnx-op",
        )
    return call.compute(lambda one: one.nonzero().t(), x)


def _top(call, x, *_):
    count, axis = call.ints(1, "k")[0], call.attribute("axis", -1)
    largest = bool(call.attribute("largest", 1))
    found = call.on_meta(x).topk(min(count, x.shape[axis]), axis, largest)
    return found[0], found[1]


def _reverse(call, x, lengths):
    axis = call.attribute("time_axis", 0)
    return call.on_meta(x).flip(axis)


def _crop_or_pad(call, x, _shape):
    wanted, axes = checked(call.ints(1), call.title()), call.attribute("axes")
    axes = list(range(x.ndim)) if axes is None else axes
    x = call.on_meta(x)
    for axis, size in zip(axes, wanted):
        axis %= x.ndim
        more = size - x.shape[axis]
        if more < 0:
            x = x.narrow(axis, -more // 2, size)
        elif more:
            flat = [0, 0] * (x.ndim - axis - 1) + [more // 2, more - more // 2]
            x = F.pad(x, flat)
    return x


def _column(call, x, image, block):
    """Columns back to an image."""
    pads = call.attribute("pads") or [0, 0]
    ones = [1] * len(call.ints(1))
    return F.fold(
        call.on_meta(x), call.ints(1), call.ints(2), call.attribute("dilations") or ones,
        pads[: len(ones)] if any(pads) else 0, call.attribute("strides") or ones,
    )  # fmt: skip


OPERATORS = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": _shape,
    "Size": _size,
    "Range": _range,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": tiled,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "DepthToSpace": _to_space,
    "SpaceToDepth": _to_depth,
    "OneHot": _one_hot,
    "EyeLike": _eye_like,
    "Trilu": _triangle,
    "NonZero": _nonzero,
    "TopK": _top,
    "ReverseSequence": _reverse,
    "CenterCropPad": _crop_or_pad,
    "Col2Im": _column,
}
