"""``parallelize``: a model and its optimizer, spread over processes as the plan says.

The order is the point: stages are cut, weights split, blocks recomputed and compiled, shards made,
and only *then* the optimizer, over what the wrappers left. An optimizer that is made earlier holds
weights that nothing trains.
"""

import inspect
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import layout
from ..errors import LoopError
from . import devices
from .blocks import blocks, units
from .choice import planned
from .microbatches import Made, is_sharded, keeps_sharded, remember
from .notation import PRECISIONS, parse, refusals, size

#: Whether buffers are sent before each forward pass: what newer releases of PyTorch call it.
_SYNC_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def parallelize(
    model, make_optimizer, strategy=None, example=None, device=None, precision=None, compiled=None
):
    """Spread a model over the processes of this job, then make its optimizer.

    Weights and buffers are those of the first process. Which samples each process should read is
    in `paceline.loop.layout.current`, which `resume` and `feed` follow.

    Args:
        model: With its weights, the same on every process.
        make_optimizer: From the wrapped model to its optimizer, such as
            ``lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3)``. Names of weights are
            those of the model.
        strategy: Such as ``dp4`` or ``pp2.dp2``; what `paceline run PLAN` says without, else
            plain data parallel over all processes.
        example: Inputs of one microbatch of one process, a tensor or a tuple; needed by ``tp``,
            which tries its split on them, and by ``pp``, which traces the model with them.
        device: Where this process computes; its own GPU or the model's device without.
        precision: ``bf16`` and ``fp16`` run forward in autocast, ``tf32`` eases FP32 products;
            the plan's without, else the model's own.
        compiled: Whether `torch.compile` compiles it; the plan's without, else not.

    Returns:
        The model to call, and its optimizer.

    Raises:
        LoopError: There is no engine for the strategy, or this model cannot be run with it; the
            reason says why.
    """
    choice = planned()
    device = devices.device_of(model, device)
    ranks = devices.start_group(device)
    wanted = read_strategy(strategy or choice.get("strategy"), ranks)
    if wanted.recompute == "none" and strategy is None:
        wanted = wanted._replace(recompute=choice.get("checkpointing") or "none")
    mesh = devices.make_mesh(wanted, device, ranks)
    model.to(device)
    if mesh is not None:
        devices.broadcast(model)
    layout.choose(devices.layout_of(wanted, mesh), devices.parts_of(wanted))
    _say(differences(model, wanted, layout.current()))
    example = _example(example, device)
    precision = precision or choice.get("precision")
    compiled = choice.get("compiler") == "compiled" if compiled is None else compiled
    made, outer = _wrap(model, wanted, mesh, example, precision, compiled)
    remember(outer, made)
    bare = outer.module if isinstance(outer, DistributedDataParallel) else outer
    optimizer = make_optimizer(bare)
    _keep_apart(optimizer)
    return outer, optimizer


def _keep_apart(optimizer):
    """Give weights that lie on different meshes groups of their own, with the same settings.

    PyTorch's optimizers update a group in one call, which takes tensors of one kind.
    """
    groups = []
    for group in optimizer.param_groups:
        kinds = {}
        for weight in group["params"]:
            mesh = getattr(weight, "device_mesh", None)
            kinds.setdefault(mesh and mesh.mesh_dim_names, []).append(weight)
        groups += [dict(group, params=weights) for weights in kinds.values()]
    optimizer.param_groups[:] = groups


def read_strategy(text, ranks):
    """The strategy of a text that the loop has engines for; data parallel over all without one.

    Raises:
        LoopError: It cannot be read, or names what the loop has no engine for.
    """
    strategy = parse(text or "dp%d" % ranks)
    reasons = refusals(strategy)
    if reasons:
        raise LoopError(
            "`%s` is not run here: %s" % (strategy.text, "; ".join(reasons)),
            "ask the plan for others with `--strategies dp,fsdp,recompute,tp,pp`",
        )
    return strategy


def _say(sentences):
    if layout.current().rank == 0:
        for one in sentences:
            print("paceline: other than on one device: " + one, file=sys.stderr)


def _example(example, device):
    if example is None:
        return None
    example = example if isinstance(example, tuple) else (example,)
    return tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in example)


def _wrap(model, strategy, mesh, example, precision, compiled):
    """The model in all its wrappers, from the inside out."""
    if size(strategy, "pp") > 1:
        from .stages import cut

        pipeline = cut(model, strategy, mesh, _needed(example, "pp"))
        outer = _prepared(pipeline.modules_of_stages, strategy, mesh, precision, compiled)
        pipeline.attach(outer)
        return Made(strategy, mesh, outer[0], pipeline), pipeline
    if size(strategy, "tp") > 1:
        from .tensor_parallel import split

        split(model, mesh["tp"], _needed(example, "tp"))
    (outer,) = _prepared([model], strategy, mesh, precision, compiled)
    return Made(strategy, mesh, outer, None), outer


def _prepared(models, strategy, mesh, precision, compiled):
    """A model, or the stages of one, each in its wrappers."""
    if strategy.recompute != "none":
        recompute(models, strategy)
    for model in models:
        if precision:
            set_precision(model, precision)
        if compiled:
            for one in _compiled_apart(model, strategy):
                one.compile()
    return [_replicate(model, strategy, mesh) for model in models]


def _compiled_apart(model, strategy):
    """What is compiled as one graph each: the whole model where nothing happens between blocks.

    Gradients that ranks reduce, and weights that they gather, are so of one block after another;
    blocks that are recomputed are compiled as they are run again.
    """
    is_alone = not strategy.axes and strategy.sharding == strategy.recompute == "none"
    return [model] if is_alone else blocks(model) or [model]


def _needed(example, axis):
    if example is None:
        raise LoopError(
            "`%s` tries the model once, and has nothing to try it with" % axis,
            "pass `example=` the inputs of one microbatch",
        )
    return example


def _replicate(model, strategy, mesh):
    """Data parallel, plain or sharded; the model itself where its samples are one rank's."""
    if is_sharded(strategy) or strategy.sharding == "zero1":
        return _shard(model, strategy, mesh)
    if size(strategy, "dp") == 1 or not any(one.requires_grad for one in model.parameters()):
        return model  # A frozen stage has no gradients to reduce, and DDP refuses it.
    if devices.replicates_shards(strategy):
        return _shard(model, strategy, mesh)
    ids = [next(model.parameters()).device] if mesh.device_type == "cuda" else None
    return DistributedDataParallel(
        model,
        device_ids=ids,
        device_mesh=mesh["dp"],
        gradient_as_bucket_view=True,
        **{_SYNC_BUFFERS: has_running_statistics(model)},
    )


def _shard(model, strategy, mesh):
    from torch.distributed.fsdp import fully_shard

    axes = dict(strategy.axes)
    names = [name for name in ("dp", "fsdp") if name in axes]
    if devices.replicates_shards(strategy):
        names.append(devices.WHOLE)
    submesh = mesh[tuple(names)] if len(names) > 1 else mesh[names[0]]
    # What one rank "shards" is whole twice while it is gathered: that is let go, too.
    lets_go = keeps_sharded(strategy) or devices.replicates_shards(strategy)
    for one in [*units(model), model]:
        fully_shard(one, mesh=submesh, reshard_after_forward=lets_go)
    return model


def recompute(models, strategy):
    """Compute what is inside the blocks of a model or of its stages again in backward.

    Raises:
        LoopError: The model has no repeated blocks.
    """
    from torch.utils.checkpoint import checkpoint

    found = units if strategy.recompute == "full" else blocks
    chosen = [one for model in models for one in found(model)]
    if not chosen:
        raise LoopError(
            "`recompute-%s` finds no repeated blocks in %s"
            % (strategy.recompute, type(models[0]).__name__),
            "keep the blocks of the model in a `ModuleList` or a `Sequential`",
        )
    for one in chosen:
        one.forward = _Recomputed(one.forward, checkpoint)


class _Recomputed:
    """A forward pass that keeps its inputs alone."""

    def __init__(self, forward, checkpoint):
        self.forward, self.checkpoint = forward, checkpoint

    def __call__(self, *args, **kwargs):
        return self.checkpoint(self.forward, *args, use_reentrant=False, **kwargs)


def set_precision(model, precision):
    """Run the model's forward pass in a precision of the plan.

    Raises:
        LoopError: PyTorch has no switch for it.
    """
    if precision not in PRECISIONS:
        raise LoopError(
            "precision `%s` needs a library of its own" % precision,
            "one of %s" % ", ".join(PRECISIONS),
        )
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if precision in _DTYPES:
        model.forward = _Autocast(model.forward, model, _DTYPES[precision])


class _Autocast:
    """A forward pass in autocast."""

    def __init__(self, forward, model, dtype):
        self.forward, self.dtype = forward, dtype
        self.device_type = next(model.parameters()).device.type

    def __call__(self, *args, **kwargs):
        with torch.autocast(self.device_type, self.dtype):
            return self.forward(*args, **kwargs)


def has_running_statistics(model):
    """Whether some layer keeps statistics of the samples that it sees."""
    kinds = nn.modules.batchnorm._NormBase
    return any(isinstance(one, kinds) and one.track_running_stats for one in model.modules())


def differences(model, strategy, share):
    """What legitimately differs from one process that sees all samples at once, as sentences.

    Args:
        model: Before it is wrapped.
        strategy: How it will be.
        share: Its layout.
    """
    pieces = share.data_ranks * strategy.microbatches
    norms = [one for one in model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    drops = [one for one in model.modules() if isinstance(one, nn.modules.dropout._DropoutNd)]
    drops = [one for one in drops if one.p > 0]
    found = []
    if norms and pieces > 1:
        found.append(
            "%d batch norms take their statistics of one microbatch of one rank, 1/%d of a step"
            % (len(norms), pieces)
        )
    if drops and (pieces > 1 or strategy.axes):
        found.append("%d dropouts draw other numbers for each rank and microbatch" % len(drops))
    return found
