"""Bytes alive for each logit at most in a step of Megatron-LM's loss: a test's script.

python compiled_loss.py yes|no, whether its parts are compiled (``jit_fuser``). After
megatron/core/tensor_parallel/cross_entropy.py and fusions/fused_cross_entropy.py.
"""

import sys
from itertools import accumulate

import torch
from torch.profiler import profile

SEQ, BATCH, WORDS, HIDDEN = 256, 2, 4096, 8


def jit_fuser(function):
    return torch.compile(function) if sys.argv[1] == "yes" else function


@jit_fuser
def widened(logits):
    logits = logits.float()
    return logits, logits.max(dim=-1)[0]


@jit_fuser
def exponentials(logits, target, most):
    logits -= most.unsqueeze(-1)
    rows = torch.arange(target.numel())
    predicted = logits.view(-1, WORDS)[rows, target.view(-1)].clone().view_as(target)
    torch.exp(logits, out=logits)
    return predicted, logits.sum(-1), logits


@jit_fuser
def softmax_and_loss(powers, predicted, total):
    loss = torch.log(total) - predicted
    powers.div_(total.unsqueeze(-1))
    return powers, loss


@jit_fuser
def gradient(softmax, target, upstream):
    softmax.view(-1, WORDS)[torch.arange(target.numel()), target.view(-1)] -= 1.0
    softmax.mul_(upstream.unsqueeze(-1))
    return softmax.to(torch.bfloat16)


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        logits, most = widened(logits)
        predicted, total, powers = exponentials(logits, target, most)
        softmax, loss = softmax_and_loss(powers, predicted, total)
        ctx.save_for_backward(softmax, target)
        return loss

    @staticmethod
    def backward(ctx, upstream):
        return gradient(*ctx.saved_tensors, upstream), None


def step(head, target):
    hidden = torch.randn(SEQ, BATCH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    CrossEntropy.apply(head(hidden), target).sum().backward()


def main():
    head = torch.nn.Linear(HIDDEN, WORDS, bias=False, dtype=torch.bfloat16)
    target = torch.randint(WORDS, (SEQ, BATCH))
    step(head, target)
    head.weight.grad = None
    with profile(profile_memory=True) as seen:
        step(head, target)
    events = seen.profiler.kineto_results.events()
    bytes_made = [one.nbytes() for one in events if one.name() == "[memory]"]
    print(max(accumulate(bytes_made)) / (SEQ * BATCH * WORDS))


main()
