"""What an update reads and writes, against what PyTorch's own optimizers touch."""

from functools import cache

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.optimizer import find_optimizer

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

SIZE = 4096
LOOKS = ("view", "detach", "empty", "alias", "_local_scalar", "real")
#: By name: torch's class and what the rule of that name assumes.
TORCH = {
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9, "weight_decay": 1e-4}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adamax": ("Adamax", {}),
    "adadelta": ("Adadelta", {}),
}


class Accesses(TorchDispatchMode):
    """Counts reads and writes of whole tensors, in tensors of one parameter's size."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        if not any(look in func._schema.name for look in LOOKS):
            changed = [
                value
                for argument, value in zip(func._schema.arguments, args, strict=False)
                if argument.alias_info and argument.alias_info.is_write
            ]
            self.count += touched((args, kwargs)) + touched((returned, changed))
        return returned


def touched(values):
    whole = [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.numel() >= SIZE]
    return len({tensor.data_ptr() for tensor in whole})


def accesses_of(name, *, foreach):
    kind, settings = TORCH[name]
    parameter = torch.nn.Parameter(torch.randn(SIZE))
    optimizer = getattr(torch.optim, kind)([parameter], lr=0.1, foreach=foreach, **settings)
    for _ in range(3):  # the first step also makes the state
        parameter.grad = torch.randn(SIZE)
        with Accesses() as seen:
            optimizer.step()
    return seen.count


@pytest.mark.parametrize("name", TORCH)
def test_accesses_are_those_of_torch(name):
    rule = find_optimizer(name)
    assert rule.plain_accesses == accesses_of(name, foreach=False)
    assert rule.foreach_accesses == accesses_of(name, foreach=True)


class Job:
    """A convolution, an affine norm and a dense layer: parameters of one to four dimensions."""

    def __init__(self):
        norm = torch.nn.BatchNorm2d(8)
        layers = torch.nn.Conv2d(1, 8, 3), norm, torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
        self.model = torch.nn.Sequential(*layers)

    def inputs(self, batch):
        return torch.empty(batch, 1, 8, 8)


@cache
def step_of(name):
    return load_workload(Job(), optimizer=name).passes[0].graph


def updated_bytes(kernel, name):
    one = lower(step_of(name), Configuration(precision="fp32", optimizer_kernel=kernel))
    rows = one.costs.kind == OpKind.OPTIMIZER
    moved = (one.costs.moved_bytes(monomials(8, 1))[0] * one.costs.count)[rows].sum()
    return moved / (4 * one.num_parameters)


@pytest.mark.parametrize("name", TORCH)
def test_an_update_moves_its_accesses_of_every_parameter(name):
    rule = find_optimizer(name)
    assert updated_bytes("fused", name) == pytest.approx(3 + 2 * rule.states_per_element)
    assert updated_bytes("foreach", name) == pytest.approx(rule.foreach_accesses)
    assert updated_bytes("plain", name) == pytest.approx(rule.plain_accesses)
