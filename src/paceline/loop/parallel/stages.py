"""Pipeline stages: a model traced, cut where its cost halves, and run by PyTorch's schedules."""

import gc
import inspect

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    pipeline,
)

from ..errors import LoopError
from . import cuts
from .blocks import shared_weights
from .notation import size

_SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
#: Newer releases of PyTorch let go of each microbatch's outputs, which nobody reads here.
_KEEPS_NOTHING = (
    {"return_outputs": False}
    if "return_outputs" in inspect.signature(ScheduleGPipe.step).parameters
    else {}
)


def cut(model, strategy, mesh, example):
    """This process's stage of a model, or its stages where they are interleaved.

    Args:
        model: The whole, on every process.
        strategy: With a ``pp`` axis.
        mesh: Of the strategy.
        example: Inputs of one microbatch of one process.

    Raises:
        LoopError: The model cannot be traced, or has too few places to cut.
    """
    group = mesh["pp"].get_group()
    tied = shared_weights(model)
    ranks = size(strategy, "pp")
    pipe = traced(model, ranks * strategy.chunks, example)
    device = next(model.parameters()).device
    own = range(mesh["pp"].get_local_rank(), ranks * strategy.chunks, ranks)
    stages = [pipe.build_stage(number, device, group) for number in own]
    names = {name: number for number, held in enumerate(sorted(tied.values())) for name in held}
    for stage in stages:
        _tidy(stage.submod, names)
    del pipe
    _let_go(model, [stage.submod for stage in stages])
    first = {name: held[0] for held in tied.values() for name in held}
    return Pipeline(stages, strategy, group, names, first, len(example[0]))


def traced(model, stages, example):
    """A model as a pipe of so many stages.

    Raises:
        LoopError: It cannot be traced, or has too few places to cut.
    """

    def policy(graph_module):
        """Mark the ends of stages in a traced graph, where stages are even and cuts cheap."""
        found = cuts.profile(graph_module)
        ends = cuts.choose(found, stages)
        if ends is None:
            raise LoopError(
                "the graph of %s has no %d places to cut" % (type(model).__name__, stages - 1),
                "use fewer stages, `dp` or `fsdp`",
            )
        for end in ends:
            last = _in_one_piece(graph_module.graph, found.nodes, end)
            with graph_module.graph.inserting_after(last):
                graph_module.graph.call_function(torch.ops.pippy._pipe_split.default, ())
        graph_module.recompile()
        return graph_module

    try:
        return pipeline(model, mb_args=tuple(example), split_policy=policy)
    except LoopError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise LoopError(
            "`pp` cannot trace %s: %s" % (type(model).__name__, reason[0][:200]),
            "use `dp`, `fsdp` or `tp`, or write the model without branches on values",
        ) from error


def _in_one_piece(graph, nodes, end):
    """Copy what crosses a cut and is spread in memory, which ranks do not send.

    Args:
        graph: Of the model.
        nodes: Its ops.
        end: Place of the last op before the cut.

    Returns:
        The node after which the cut is to be.
    """
    place = {node: number for number, node in enumerate(nodes)}
    last = nodes[end]
    for node in nodes[: end + 1]:
        later = [user for user in node.users if place.get(user, end + 1) > end]
        value = node.meta.get("val")
        if not later or not isinstance(value, torch.Tensor) or value.is_contiguous():
            continue
        how = {"memory_format": torch.contiguous_format}
        with graph.inserting_after(node):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,), how)
        # A part of the module that made it, as tracing would have said.
        copy.meta = dict(node.meta, val=torch.empty_like(value, **how))
        for user in later:
            user.replace_input_with(node, copy)
        last = copy if node is last else last
    return last


def _let_go(model, stages):
    """Free the weights of other stages, which the caller's model and the trace would hold."""
    kept = {one.data_ptr() for stage in stages for one in [*stage.parameters(), *stage.buffers()]}
    for one in [*model.parameters(), *model.buffers()]:
        if one.data_ptr() not in kept:
            one.data = one.data.new_empty(0)
    gc.collect()


def _tidy(stage, tied):
    """Drop weights that a stage does not use, and tie those again that it uses at two names.

    Args:
        stage: What tracing made.
        tied: Number of each shared weight of the whole, by name.
    """
    used = {
        str(node.target) for node in stage.graph.nodes if node.op in ("call_module", "get_attr")
    }
    first = {}
    for name, weight in list(stage.named_parameters(remove_duplicate=False)):
        owner, _, key = name.rpartition(".")
        parts = name.split(".")
        held = stage.get_submodule(owner)._parameters
        if not any(".".join(parts[:k]) in used for k in range(1, len(parts) + 1)):
            del held[key]
        elif name in tied:
            held[key] = first.setdefault(tied[name], weight)


class Pipeline(nn.Module):
    """Stages of a model, under the names that their weights have in the whole.

    Attributes:
        modules_of_stages: What each stage computes, before it is wrapped.
        is_last: Whether one of them makes the outputs.
        is_stage: True: a save takes its weights for part of a model.
        first_names: Of shared weights, by each of their names: what the whole model calls them.
    """

    is_stage = True

    def __init__(self, stages, strategy, group, tied, first_names, num_samples):
        super().__init__()
        vars(self)["modules_of_stages"] = [stage.submod for stage in stages]
        self._take_over(_together(self.modules_of_stages))
        self.first_names = first_names
        self.is_last = stages[-1].is_last
        self._stages, self._strategy, self._group = stages, strategy, group
        self._num_samples, self._weigh = num_samples, None
        how = {"loss_fn": self._loss_of, "scale_grads": False}
        if strategy.schedule == "interleaved":
            self._schedule = ScheduleInterleaved1F1B(stages, strategy.microbatches, **how)
        else:
            # With fewer microbatches than stages `1f1b` is `gpipe`, and PyTorch's takes no fewer.
            is_short = strategy.microbatches < size(strategy, "pp")
            kind = _SCHEDULES["gpipe" if is_short else strategy.schedule]
            self._schedule = kind(stages[0], strategy.microbatches, **how)
        self._tied = self._partners(tied)

    def _take_over(self, own):
        self._modules, self._parameters, self._buffers = (
            own._modules, own._parameters, own._buffers,
        )  # fmt: skip

    def attach(self, wrapped):
        """Run the stages in their wrappers, which PyTorch asks for the stage's graph."""
        for stage, module, outer in zip(self._stages, self.modules_of_stages, wrapped):
            if outer is not module:
                vars(outer)["graph"] = module.graph
            stage.submod = outer
        self._take_over(_together(self.modules_of_stages))

    def forward(self, *args, **kwargs):
        """Refused: a stage alone gives no outputs."""
        raise LoopError(
            "a pipeline's stage gives no outputs of its own",
            "run steps with `paceline.loop.forward_backward`",
        )

    def step(self, loss, inputs, targets, weight=len):
        """Forward and backward of one step's samples, microbatch by microbatch.

        Returns:
            The mean loss of the samples; None on other stages than the last.

        Raises:
            LoopError: Not as many samples as the stages were traced with.
        """
        wanted = self._num_samples * self._strategy.microbatches
        if len(inputs[0]) != wanted:
            raise LoopError(
                "%d samples came, and the stages were traced with %d microbatches of %d"
                % (len(inputs[0]), self._strategy.microbatches, self._num_samples),
                "leave out the last, smaller batch (`drop_last`)",
            )
        total = float(weight(targets))
        self._weigh = lambda out, target: loss(out, target) * (float(weight(target)) / total)
        losses = []
        first = inputs if self._stages[0].is_first else ()
        last = {"target": targets, "losses": losses} if self.is_last else {}
        try:
            self._schedule.step(*first, **last, **_KEEPS_NOTHING)
        finally:
            self._weigh = None
        self._sum_tied()
        return torch.stack([one.detach() for one in losses]).sum() if self.is_last else None

    def is_counted_elsewhere(self, name):
        """Whether an earlier stage holds the same weight."""
        rank = dist.get_rank(self._group)
        return any(one == name and partner < rank for one, partner in self._tied)

    def _loss_of(self, outputs, targets):
        return self._weigh(outputs, targets)

    def _partners(self, tied):
        """Weights of this stage that another stage holds, too, with its rank.

        Raises:
            LoopError: Three stages or more hold one weight.
        """
        own = {tied[name]: name for name, _ in self.named_parameters() if name in tied}
        held = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(held, sorted(own), group=self._group)
        found = []
        for number in sorted(own):
            ranks = [rank for rank, numbers in enumerate(held) if number in numbers]
            if len(ranks) > 2:
                raise LoopError(
                    "`%s` is shared by %d stages" % (own[number], len(ranks)),
                    "use fewer stages, `dp` or `fsdp`",
                )
            other = [rank for rank in ranks if rank != dist.get_rank(self._group)]
            found += [(own[number], rank) for rank in other]
        return found

    @torch.no_grad()
    def _sum_tied(self):
        """Give both holders of a weight the sum of their gradients, so that they stay equal."""
        for name, partner in self._tied:
            gradient = _local(self.get_parameter(name).grad)
            received = torch.empty_like(gradient)
            rank = dist.get_global_rank(self._group, partner)
            sends = dist.P2POp(dist.isend, gradient.clone(), rank, self._group)
            takes = dist.P2POp(dist.irecv, received, rank, self._group)
            for one in dist.batch_isend_irecv([sends, takes]):
                one.wait()
            gradient.add_(received)


def _together(modules):
    """One tree of the weights of several, under their names; the module itself where it is alone.

    Raises:
        LoopError: Two of them hold one weight.
    """
    if len(modules) == 1:
        return modules[0]
    whole = nn.Module()
    for kind in ("_parameters", "_buffers"):
        for module in modules:
            for name, one in getattr(module, kind).items():
                if kind == "_parameters" and name in whole._parameters:
                    raise LoopError(
                        "`%s` is held by two stages of one rank" % name, "use `1f1b` stages"
                    )
                getattr(whole, kind).setdefault(name, one)
    for name in dict.fromkeys(name for module in modules for name in module._modules):
        found = [one._modules[name] for one in modules if one._modules.get(name) is not None]
        whole._modules[name] = _together(found)
    return whole


def _local(value):
    return value.to_local() if hasattr(value, "to_local") else value
