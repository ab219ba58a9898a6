"""Expert parallel: ranks hold a part of the experts, batches of their own, and swap tokens."""

import expert_model
import torch
import torch.distributed as dist
from gloo_worker import batch_of, loss_of, loss_of_two_steps, train
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd


class SharedExperts(expert_model.Experts):
    """A rank's part of the experts; copies of tokens travel to theirs and results come back."""

    def __init__(self, whole, rank, world):
        nn.Module.__init__(self)
        mine = slice(rank * len(whole.up) // world, (rank + 1) * len(whole.up) // world)
        self.up, self.down = (nn.Parameter(w[mine].clone()) for w in (whole.up, whole.down))
        self.world = world

    def sent(self, copies):
        swapped = swap(copies).view(self.world, -1, *copies.shape[1:])
        return swapped.transpose(0, 1).flatten(1, 2)

    def returned(self, made):
        parts = made.view(len(made), self.world, -1, made.shape[-1])
        return swap(parts.transpose(0, 1).flatten(0, 1))


def swap(parts):
    """The first axis cut into one part per rank, each sent to its own."""
    parts = parts.contiguous()
    return dist._functional_collectives.wait_tensor(
        all_to_all_single_autograd(parts, None, None, dist.group.WORLD)
    )


def make_model():
    torch.manual_seed(0)
    return expert_model.Model()


def run_experts(path, rank, world):
    model = make_model()
    for layer in model.layers:
        layer.experts = SharedExperts(layer.experts, rank, world)
    for name, parameter in model.named_parameters():
        is_shared = ".experts." not in name
        parameter.register_post_accumulate_grad_hook(lambda p, s=is_shared: meet(p, s, world))
    return (*train(model, rank), list(range(world)))


def meet(parameter, is_shared, world):
    """Mean over ranks; experts have met the tokens of all ranks already."""
    if is_shared:
        dist.all_reduce(parameter.grad)
    parameter.grad /= world


def reference_loss(path, ranks):
    """The same two steps in one process, the mean over all ranks' batches."""
    batches = [batch_of(rank) for rank in ranks]

    def mean_loss(model):
        losses = [loss_of(model(inputs), targets) for inputs, targets in batches]
        return torch.stack(losses).mean()

    return loss_of_two_steps(make_model(), mean_loss)


MODES = {"experts": run_experts}
REFERENCES = {"experts": reference_loss}
