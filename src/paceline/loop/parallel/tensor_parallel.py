"""Tensor parallel: pairs of layers split over ranks, each tried before it is kept.

A rank keeps its part of a weight as a shard of a DTensor, so that a save knows the whole. The
layers' own code runs on the parts: one sum over ranks at the end of a pair, and one at its
beginning in backward. What a module counts in attributes (heads, groups) is divided where, and only
where, the split module then gives what the whole one gave, forward and backward. A pair that
never does stays whole, and the reason is said.
"""

import itertools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from ..errors import LoopError
from . import pairs as flow
from .blocks import shared_weights

#: How many ways to divide the counts of a module are tried.
_MAX_TRIED = 64
#: Largest difference, as a share of the largest value, that rounding explains: of sums in another
#: order, by the digits of the type.
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-3}
_COARSE = 3e-2


def split(model, mesh, example):
    """Split what can be split of a model over the ranks of a mesh, in place.

    Raises:
        LoopError: Nothing can; it says why of the pairs that were tried.
    """
    trial = flow.Trial(model, example)
    pairs = flow.find_pairs(model, trial)
    calls = {
        pair: flow.Call(*map(_fresh, trial.calls[pair.owner][:2]), flow.read_outside(trial, pair))
        for pair in pairs
    }
    del trial
    tied = shared_weights(model)
    kept, left, known = [], [], {}
    for pair in pairs:
        reason = _whole_for(model, pair, tied, mesh.size())
        reason = reason or _try(model, pair, mesh, calls[pair], known)
        (left if reason else kept).append((pair, reason))
    if not kept:
        told = "; ".join("%s: %s" % (pair.row, reason) for pair, reason in left[:3])
        raise LoopError(
            "`tp` finds nothing to split in %s%s" % (type(model).__name__, told and ": " + told),
            "use `dp`, `fsdp` or `pp` for this model",
        )
    if dist.get_rank() == 0:
        for pair, reason in left:
            print("paceline: tp leaves %s whole: %s" % (pair.row, reason), file=sys.stderr)
    _seed_alike(mesh)
    return [pair for pair, _ in kept]


def _seed_alike(mesh):
    """Draw the same numbers on ranks that share weights: what they hold whole must stay equal."""
    seed = torch.randint(0, 2**31, (1,), device=mesh.device_type)
    dist.broadcast(seed, group=mesh.get_group(), group_src=0)
    torch.manual_seed(int(seed))


def _whole_for(model, pair, tied, ranks):
    """Why a pair cannot be split at all; None if it may."""
    for name in (*pair.columns, pair.row):
        layer = model.get_submodule(name)
        makes, takes = flow.weight_dims(layer)
        dim = takes if name == pair.row else makes
        if layer.weight.shape[dim] % ranks:
            return "%d ranks do not divide %d features" % (ranks, layer.weight.shape[dim])
        if any(id(one) in tied for one in layer.parameters()):
            return "%s shares its weight with another layer" % name
    return None


def _try(model, pair, mesh, call, known):
    """Split a pair if that changes nothing; None then, else why not.

    Args:
        model: In place.
        pair: What to split.
        mesh: Over which ranks.
        call: What the module around it is called with.
        known: Which counts were divided in modules of a kind, which is tried first.
    """
    owner = model.get_submodule(pair.owner)
    wanted = _answers(owner, call)
    split_ids = {id(weight) for weight, _ in _split_weights(model, pair)}
    key = (type(owner), tuple(one[len(pair.owner) :] for one in (*pair.columns, pair.row)))
    for names in _divisions(owner, mesh.size(), known.get(key)):
        undo = _apply(model, pair, mesh, names)
        if _same(owner, call, wanted, split_ids, mesh):
            known[key] = names
            _keep(model, pair, mesh)
            return None
        undo()
    return "%s gives another result on parts of it" % (pair.owner or type(owner).__name__)


def _divisions(owner, ranks, first):
    """Sets of counts to divide: of the owner by trial, of layers between always."""
    counts = [
        name
        for name, value in vars(owner).items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value % ranks == 0
    ]
    if first is not None:
        yield first
    sizes = range(len(counts) + 1)
    tried = itertools.chain.from_iterable(itertools.combinations(counts, k) for k in sizes)
    yield from itertools.islice(tried, _MAX_TRIED)


def _apply(model, pair, mesh, names):
    """Run a pair on this rank's part of its weights; the answer undoes it."""
    entry = _Entry(mesh.get_group(), len(pair.columns))
    owner = model.get_submodule(pair.owner)
    changed = []

    def change(module, **values):
        """Set attributes, and note what they were."""
        for name, value in values.items():
            changed.append((module, name, vars(module).get(name, changed)))
            setattr(module, name, value)

    change(owner, **{name: getattr(owner, name) // mesh.size() for name in names})
    for name in pair.columns:
        layer = model.get_submodule(name)
        change(layer, forward=_Column(layer, mesh, entry))
    row = model.get_submodule(pair.row)
    change(row, forward=_Row(row, mesh))
    width = _width(model, pair)
    for name in pair.between:
        layer = model.get_submodule(name)
        if _is_per_feature(layer, width):
            for count in ("num_groups", "num_channels", "num_features"):
                if hasattr(layer, count):
                    change(layer, **{count: getattr(layer, count) // mesh.size()})
            change(layer, forward=_PerFeature(layer, mesh))
        else:
            change(layer, forward=_Replicated(layer, mesh))

    def undo():
        """Set all back, the last first."""
        for module, name, value in reversed(changed):
            if value is changed:
                delattr(module, name)
            else:
                setattr(module, name, value)

    return undo


def _width(model, pair):
    """Features between the layers of a pair, as its first column makes them."""
    layer = model.get_submodule(pair.columns[0])
    return layer.weight.shape[flow.weight_dims(layer)[0]]


def _is_per_feature(layer, width):
    own = list(layer.parameters(recurse=False))
    return isinstance(layer, (nn.GroupNorm, nn.modules.batchnorm._BatchNorm)) and all(
        one.shape == (width,) for one in own
    )


def _split_weights(model, pair):
    """Weights of a pair that ranks split, each with its dim that is."""
    width = _width(model, pair)
    for name in (*pair.columns, pair.row, *pair.between):
        layer = model.get_submodule(name)
        if name in pair.between and not _is_per_feature(layer, width):
            continue
        makes, takes = flow.weight_dims(layer) or (0, 0)
        if layer.weight is not None:
            yield layer.weight, takes if name == pair.row else makes
        if name != pair.row and layer.bias is not None:
            yield layer.bias, 0


def _keep(model, pair, mesh):
    """Let go of the parts of the weights that are other ranks'."""
    dims = {id(weight): dim for weight, dim in _split_weights(model, pair)}
    for name in (*pair.columns, pair.row, *pair.between):
        held = model.get_submodule(name)._parameters
        for key, whole in held.items():
            if whole is not None and id(whole) in dims:
                dim = dims[id(whole)]
                part = _part(whole.detach(), mesh, dim).clone()
                shard = DTensor.from_local(part, mesh, [Shard(dim)], run_check=False)
                held[key] = nn.Parameter(shard, requires_grad=whole.requires_grad)


def _part(whole, mesh, dim):
    """This rank's part of a weight: what it keeps of a shard, or of one that is whole still."""
    if isinstance(whole, DTensor):
        return whole.to_local()
    return whole.chunk(mesh.size(), dim)[mesh.get_local_rank()]


class _Swapped:
    """A layer's own forward pass on other tensors than its weights."""

    def __init__(self, layer, mesh):
        self.layer, self.mesh = layer, mesh
        self.inner = type(layer).forward
        self.dims = flow.weight_dims(layer) or (0, 0)

    def run(self, values, *args, **kwargs):
        """Call the layer with other weights in place; its own are back afterwards."""
        held = self.layer._parameters
        before = {key: held[key] for key in values}
        held.update(values)
        try:
            return self.inner(self.layer, *args, **kwargs)
        finally:
            held.update(before)

    def weights(self):
        """Parameters of the layer by name."""
        return {key: one for key, one in self.layer._parameters.items() if one is not None}


class _Column(_Swapped):
    def __init__(self, layer, mesh, entry):
        super().__init__(layer, mesh)
        self.entry = entry

    def __call__(self, value):
        dims = {"weight": self.dims[0], "bias": 0}
        parts = {key: _part(one, self.mesh, dims[key]) for key, one in self.weights().items()}
        if hasattr(self.layer, "nf"):
            return self._conv1d(value, parts)
        return self.run(parts, self.entry(value))

    def _conv1d(self, value, parts):
        whole, self.layer.nf = self.layer.nf, self.layer.nf // self.mesh.size()
        try:
            return self.run(parts, self.entry(value))
        finally:
            self.layer.nf = whole


class _Row(_Swapped):
    def __call__(self, value):
        weights = self.weights()
        bias = weights.pop("bias", None)
        parts = {"weight": _part(weights["weight"], self.mesh, self.dims[1])}
        if bias is not None:
            parts["bias"] = torch.zeros_like(bias) if hasattr(self.layer, "nf") else None
        out = _Leave.apply(self.run(parts, value), self.mesh.get_group())
        if bias is None:
            return out
        is_filter = isinstance(self.layer, nn.modules.conv._ConvNd)
        shape = (-1, *[1] * (self.layer.weight.dim() - 2)) if is_filter else (-1,)
        return out + bias.view(shape)


class _PerFeature(_Swapped):
    """A norm whose groups or channels are split with the features."""

    def __call__(self, value):
        return self.run(
            {key: _part(one, self.mesh, 0) for key, one in self.weights().items()}, value
        )


class _Replicated(_Swapped):
    """A layer that every rank uses on its own part: its gradient is the sum of theirs."""

    def __call__(self, *args, **kwargs):
        group = self.mesh.get_group()
        return self.run(
            {key: _Enter.apply(one, group) for key, one in self.weights().items()}, *args, **kwargs
        )


class _Entry:
    """Where data enters a pair: layers that read one value sum its gradient once."""

    def __init__(self, group, readers):
        self.group, self.readers = group, readers
        self.source, self.value, self.left = None, None, 0

    def __call__(self, value):
        if self.source is not value:
            self.source, self.left = value, self.readers
            self.value = _Enter.apply(value, self.group)
        entered, self.left = self.value, self.left - 1
        if not self.left:
            self.source = self.value = None
        return entered


class _Enter(torch.autograd.Function):
    """The same value; its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx, value, group):
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Leave(torch.autograd.Function):
    """The sum over ranks of a value that nothing else holds; its gradient is the same on all."""

    @staticmethod
    def forward(ctx, value, group):
        ctx.mark_dirty(value)
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def _answers(owner, call):
    """Outputs of a module and gradients of what goes in and of its weights, for a fixed sum.

    Every gradient that can exist is asked for; of weights that are split, the whole's part only.
    """
    weights = [one for one in owner.parameters() if one.is_floating_point()]
    frozen = [one for one in weights if not one.requires_grad]
    modes = {one: one.training for one in owner.modules()}
    owner.eval()
    try:
        for one in frozen:
            one.requires_grad_(True)
        args, kwargs = _fresh(call.args), _fresh(call.kwargs)
        entered = [one for one in flow.tensors_in((args, kwargs)) if one.requires_grad]
        with torch.enable_grad():
            given = flow.tensors_in(owner(*args, **kwargs))
            out = [given[place] for place in call.output if given[place].is_floating_point()]
        score = sum((one * _waves(one)).sum() for one in out if one.requires_grad)
        found = torch.autograd.grad(score, entered + weights, allow_unused=True)
    finally:
        for one in frozen:
            one.requires_grad_(False)
        for one, mode in modes.items():
            one.training = mode
    found = [one.to_local() if isinstance(one, DTensor) else one for one in found]
    return [one.detach() for one in out], found


def _waves(value):
    """Numbers of both signs that are the same on every rank."""
    count = torch.arange(value.numel(), device=value.device, dtype=value.dtype)
    return torch.cos(count).view(value.shape)


def _fresh(value):
    """The same arguments, cut off from the trial's graph; what no weight reaches has no gradient.

    Tables of rotations, masks: a rank's gradient of those would be its heads' share, unused.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _fresh(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_fresh(one) for one in value)
    return value


def _same(owner, call, wanted, split_ids, mesh):
    """Whether a split module gives on every rank what the whole one gave.

    Weights are whole still while they are tried: a rank's gradient of a split one is zero but in
    its part, so the sum over ranks is the whole's; any other must be the whole's on each rank.

    Args:
        owner: The module, split.
        call: What it is called with.
        wanted: From `_answers` before.
        split_ids: Ids of its split weights.
        mesh: Over which ranks.
    """
    try:
        outputs, gradients = _answers(owner, call)
    except (RuntimeError, ValueError, IndexError, TypeError):
        outputs = None
    if not _all(mesh, outputs is not None):
        return False
    keys = [None] * (len(gradients) - len(list(owner.parameters())))
    keys += [id(one) for one in owner.parameters()]
    is_same = all(_close(a, b, 0.0) for a, b in zip(wanted[0], outputs))
    largest = max((float(one.abs().max()) for one in wanted[1] if one is not None), default=0.0)
    for key, whole, found in zip(keys, wanted[1], gradients):
        if whole is None or found is None:
            is_same = is_same and whole is found
            continue
        if key in split_ids:
            dist.all_reduce(found, group=mesh.get_group())
        is_same = is_same and _close(whole, found, largest)
    return _all(mesh, is_same)


def _all(mesh, is_true):
    """Whether something holds on every rank."""
    value = torch.tensor(float(is_true), device=mesh.device_type)
    dist.all_reduce(value, op=dist.ReduceOp.MIN, group=mesh.get_group())
    return bool(value)


def _close(wanted, found, largest):
    """Whether rounding explains a difference; what should be zero is noise of the largest value."""
    if wanted.shape != found.shape:
        return False
    allowed = _ROUNDING.get(wanted.dtype, _COARSE) * float(wanted.abs().max())
    allowed += 100.0 * torch.finfo(wanted.dtype).eps * largest
    return float((wanted - found).abs().max()) <= allowed
