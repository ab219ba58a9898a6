"""Column and row pairs of a model, by the flow of data through one trial pass.

A layer that makes features, and the layer that takes all of them in and nothing else, can be split
over ranks: the first by what it makes (columns), the second by what it takes (rows). Which layer
feeds which is read from PyTorch's own graph of the trial's backward pass.

Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3.
"""

from collections import namedtuple

import torch
from torch import nn

#: Layers with one weight matrix or filter: the dims of the weight that make and that take features.
_DIMS = {
    nn.Linear: (0, 1), nn.Conv1d: (0, 1), nn.Conv2d: (0, 1), nn.Conv3d: (0, 1),
}  # fmt: skip

#: ``columns`` feed ``row`` alone; ``between`` are layers with weights that stand among them;
#: ``owner`` is the innermost module around all of them. Names of modules; a tuple and a tuple.
Pair = namedtuple("Pair", ["columns", "row", "between", "owner"])

#: One call of a module in the trial; ``output`` as it came, or the places of what others read.
Call = namedtuple("Call", ["args", "kwargs", "output"])


def weight_dims(module):
    """Dims of a layer's weight that make and that take features; None for other layers."""
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):  # transformers' own
        return 1, 0
    dims = next((dims for kind, dims in _DIMS.items() if isinstance(module, kind)), None)
    return None if dims is None or getattr(module, "groups", 1) > 1 else dims


class Trial:
    """One forward pass of a model, without dropout, and what it showed.

    Attributes:
        calls: What each module was called with, by name; of several calls the last.
        makers: Name of the layer that made the output of a node of the graph.
        count: How often each module was called.
    """

    def __init__(self, model, example):
        self.calls, self.makers, self.count, self.nodes = {}, {}, {}, []
        self.names = {id(one): name for name, one in model.named_modules()}
        handles = [
            one.register_forward_hook(self._see, with_kwargs=True) for one in model.modules()
        ]
        frozen = [one for one in model.parameters() if not one.requires_grad]
        modes = {one: one.training for one in model.modules()}
        model.eval()
        try:
            with torch.enable_grad():
                for one in frozen:
                    one.requires_grad_(True)
                self.output = model(*example)
        finally:
            for one in frozen:
                one.requires_grad_(False)
            for one, mode in modes.items():
                one.training = mode
            for one in handles:
                one.remove()

    def _see(self, module, args, kwargs, output):
        name = self.names[id(module)]
        self.calls[name] = Call(args, kwargs, output)
        self.count[name] = self.count.get(name, 0) + 1
        node = getattr(output, "grad_fn", None)
        if weight_dims(module) is not None and node is not None:
            self.makers[node] = name
            self.nodes.append(node)


def find_pairs(model, trial):
    """Pairs that can be split, in the order of the pass; no layer is in two of them."""
    owners = {id(p): name.rpartition(".")[0] for name, p in model.named_parameters()}
    weights = {id(p) for p in model.parameters()}
    sources, leaves = {}, {}
    for name in trial.makers.values():
        found = _upstream(trial, name)
        sources[name] = found[0]
        leaves[name] = {owners[key] for key in found[1] & weights}
    ends = [node for node in map(_grad_fn, _tensors(trial.output)) if node is not None]
    reach = {}
    for name, made_by in sources.items():
        for one in made_by:
            reach.setdefault(one, set()).add(name)
    for node in ends:
        for one in _walk(node, trial.makers)[0]:
            reach.setdefault(one, set()).add("")
    pairs, used = [], set()
    for row, columns in sources.items():
        if not columns or row in used or columns & used or trial.count[row] > 1:
            continue
        if all(reach.get(one) == {row} and trial.count[one] == 1 for one in columns):
            between = tuple(sorted(leaves[row] - columns))
            owner = _common([*columns, row, *between])
            pairs.append(Pair(tuple(sorted(columns)), row, between, owner))
            used |= columns | {row}
    return pairs


def read_outside(trial, pair):
    """Which tensors that a pair's owner gives are read, or given on, by anything but the pair.

    Attention gives its weights beside its answer, and nothing need read them.

    Returns:
        Places in `tensors_in` of its output.
    """
    row = {node: name for node, name in trial.makers.items() if name == pair.row}
    seen, left = set(), [_grad_fn(one) for one in _tensors(trial.output)]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node not in row:
            left += [one for one, _ in node.next_functions]
    given = _tensors(trial.calls[pair.owner].output)
    return tuple(k for k, one in enumerate(given) if one.grad_fn is None or one.grad_fn in seen)


def _upstream(trial, name):
    call = trial.calls[name]
    layers, leaves = set(), set()
    for value in _tensors(call.args):
        if value.grad_fn is not None:
            more = _walk(value.grad_fn, trial.makers)
            layers, leaves = layers | more[0], leaves | more[1]
    return layers, leaves


def _walk(start, makers):
    """Layers whose output a node is made of, and ids of weights used since; not beyond those."""
    layers, leaves, seen, left = set(), set(), set(), [start]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in makers:
            layers.add(makers[node])
        elif hasattr(node, "variable"):
            leaves.add(id(node.variable))
        else:
            left += [one for one, _ in node.next_functions]
    return layers, leaves


def _grad_fn(value):
    return value.grad_fn


def _tensors(value):
    """Tensors in what a module takes or gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [found for one in value for found in _tensors(one)]
    return []


tensors_in = _tensors


def _common(names):
    """The innermost module around all of some."""
    paths = [name.split(".")[:-1] for name in names]
    shared = []
    for parts in zip(*paths):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
