"""Forward and backward of one step's samples, in as many microbatches as the strategy has.

What must hold for every strategy: gradients are those of the mean loss over the samples of all
ranks, whatever pieces they come in.
"""

import contextlib
import weakref
from collections import namedtuple

import torch
import torch.distributed as dist

from ..errors import LoopError

#: What was made of a model: its strategy, mesh, the module whose gradients are held back until the
#: last microbatch (``inner``), and the pipeline (None without stages).
Made = namedtuple("Made", ["strategy", "mesh", "inner", "pipeline"])

_made = weakref.WeakKeyDictionary()


def remember(model, made):
    """Keep what was made of a model."""
    _made[model] = made


def made_of(model):
    """What `parallelize` made of a model.

    Raises:
        LoopError: It did not make it.
    """
    try:
        return _made[model]
    except KeyError:
        raise LoopError(
            "this model did not come from `parallelize`", "pass on the model that it returned"
        ) from None


def forward_backward(model, loss, inputs, targets, weight=len):
    """Loss and gradients of this rank's samples, in the strategy's microbatches.

    Args:
        model: From `parallelize`.
        loss: Of outputs and targets: a mean, each sample (or what ``weight`` counts) alike.
        inputs: A tensor or a tuple of them, samples first.
        targets: A tensor, samples first.
        weight: How much a piece of ``targets`` counts in the mean, such as its number of tokens;
            the number of samples without. Ranks read equally much of what it counts.

    Returns:
        The mean loss of this rank's samples, detached; None on a pipeline's other stages.

    Raises:
        LoopError: The samples do not divide into microbatches that a pipeline can take.
    """
    made = made_of(model)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if made.pipeline is not None:
        return made.pipeline.step(loss, inputs, targets, weight)
    pieces = list(zip(zip(*[_cut(one, made) for one in inputs]), _cut(targets, made)))
    counted = [float(weight(target)) for _, target in pieces]
    total = 0.0
    for number, ((values, target), count) in enumerate(zip(pieces, counted)):
        with _held_back(made, is_last=number == len(pieces) - 1):
            part = loss(model(*values), target) * (count / sum(counted))
            part.backward()
        total = total + part.detach()
    return total


def _cut(values, made):
    if len(values) < made.strategy.microbatches:
        raise LoopError(
            "%d samples do not make %d microbatches" % (len(values), made.strategy.microbatches),
            "give a rank at least one sample for each",
        )
    return values.tensor_split(made.strategy.microbatches)


@contextlib.contextmanager
def _held_back(made, is_last):
    """Inside, gradients stay on their rank unless it is the last microbatch of a step.

    What splits gradients sums them in every microbatch over the ranks that split them, and over
    replicas of those in the last.
    """
    inner, strategy = made.inner, made.strategy
    if hasattr(inner, "no_sync"):
        with contextlib.nullcontext() if is_last else inner.no_sync():
            yield
        return
    if hasattr(inner, "set_requires_gradient_sync"):
        if is_sharded(strategy):
            inner.set_requires_all_reduce(is_last)
            inner.set_reshard_after_backward(is_last or keeps_sharded(strategy))
        else:
            inner.set_requires_gradient_sync(is_last)
            inner.set_reshard_after_backward(is_last)
    yield


def is_sharded(strategy):
    """Whether gradients are split among ranks."""
    return strategy.sharding in ("zero2", "zero3") or "fsdp" in dict(strategy.axes)


def keeps_sharded(strategy):
    """Whether weights are split among ranks, too."""
    return strategy.sharding == "zero3" or "fsdp" in dict(strategy.axes)


@torch.no_grad()
def mean_loss(model, loss):
    """The mean of a loss over all ranks that read different samples, on every rank.

    Args:
        model: From `parallelize`.
        loss: What `forward_backward` returned; None where a stage has none.
    """
    made = made_of(model)
    if made.mesh is None:
        return float(loss)
    is_last = made.pipeline is None or made.pipeline.is_last
    axes = dict(made.strategy.axes)
    share = 1.0 / (axes.get("dp", 1) * axes.get("fsdp", 1) * axes.get("tp", 1))
    device = next(model.parameters()).device
    value = torch.zeros((), dtype=torch.float64, device=device)
    if is_last:
        value += float(loss) * share
    dist.all_reduce(value)
    return float(value)


@torch.no_grad()
def clip_gradients(model, max_norm):
    """Scale gradients so that the norm of all of them, whatever ranks hold them, has a limit.

    `torch.nn.utils.clip_grad_norm_` sees one stage of a pipeline, and what shards hold once.

    Args:
        model: From `parallelize`, after `forward_backward`.
        max_norm: The limit of the 2-norm.

    Returns:
        The norm before, the same on every rank.
    """
    made = made_of(model)
    names = [name for name, one in model.named_parameters() if one.grad is not None]
    held = [model.get_parameter(name).grad for name in names]
    squares = {}
    for name, gradient in zip(names, held):
        if made.pipeline is None or not made.pipeline.is_counted_elsewhere(name):
            key, part = _part_of(gradient)
            squares[key] = squares.get(key, 0.0) + part.detach().double().square().sum()
    total = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for (_, groups), square in sorted(squares.items(), key=lambda one: one[0][0]):
        for group in groups:
            dist.all_reduce(square, group=group)
        total += square
    if made.pipeline is not None:
        dist.all_reduce(total, group=made.mesh["pp"].get_group())
    norm = float(total.sqrt())
    for gradient in held:
        _part_of(gradient)[1].mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm


def _part_of(gradient):
    """What of a gradient is here, and the groups over which its parts lie, with their names."""
    if not hasattr(gradient, "to_local"):
        return ((), ()), gradient
    mesh = gradient.device_mesh
    dims = [k for k, one in enumerate(gradient.placements) if one.is_shard() and mesh.size(k) > 1]
    names = tuple(mesh.mesh_dim_names[k] for k in dims)
    return (names, tuple(mesh.get_group(k) for k in dims)), gradient.to_local()
