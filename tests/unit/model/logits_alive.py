"""Bytes of logits' size alive at most in a step, by how a trainer writes its loss: a test's script.

python logits_alive.py BATCH SEQ WORDS
"""

import sys
import weakref

import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.utils._python_dispatch import TorchDispatchMode

BATCH, SEQ, WORDS = (int(word) for word in sys.argv[1:])
TOKENS = BATCH * SEQ
HIDDEN = 8
LABELS = torch.randint(WORDS, (BATCH, SEQ))


class Counting(TorchDispatchMode):
    """Bytes of storages of TOKENS - BATCH rows of WORDS or more: alive, and at most so."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor) and one.numel() >= (TOKENS - BATCH) * WORDS:
                self.count(one.untyped_storage())
        self.most = max(self.most, sum(self.alive.values()))
        return made

    def count(self, storage):
        if storage._cdata not in self.alive:
            self.alive[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self.alive.pop, storage._cdata)


class InPlace(torch.autograd.Function):
    """One kernel that writes the gradient over the logits it read."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits)
        return 0.0 * logits[:1, 0].sum()

    @staticmethod
    def backward(ctx, grad):
        (logits,) = ctx.saved_tensors
        return logits.zero_(), None


class InPlaceWide(torch.autograd.Function):
    """Narrow logits widened, a softmax in place of that, and the gradient in place of both."""

    @staticmethod
    def forward(ctx, logits, labels):
        softmax = logits.float()
        softmax -= softmax.max(-1, keepdim=True)[0]
        torch.exp(softmax, out=softmax)
        softmax.div_(softmax.sum(-1, keepdim=True))
        ctx.save_for_backward(softmax, labels)
        return -softmax.gather(-1, labels[:, None]).log().sum()

    @staticmethod
    def backward(ctx, grad):
        softmax, labels = ctx.saved_tensors
        softmax[torch.arange(len(labels)), labels] -= 1.0
        return softmax.mul_(grad), None


def plain(logits, labels):
    return cross_entropy(logits.view(-1, WORDS), labels.reshape(-1))


def fused(logits, labels):
    return InPlace.apply(logits.view(-1, WORDS), labels.reshape(-1))


def split(logits, labels):
    return InPlaceWide.apply(logits.view(-1, WORDS), labels.reshape(-1))


def as_is(logits, loss):
    """Of Megatron-LM, whose function widens them itself."""
    return loss(logits, LABELS)


def wide(logits, loss):
    """Of transformers since 4.50."""
    logits = logits.float()
    return loss(logits, pad(LABELS, (0, 1), value=-100)[..., 1:].contiguous())


def shifted(logits, loss):
    """Of transformers from 4.46 to 4.49."""
    logits = logits.float()
    shift_logits = logits[..., :-1, :].contiguous()
    return loss(shift_logits, LABELS[..., 1:].contiguous())


class Model(nn.Module):
    """A head and its loss; ``early`` as models computed it before transformers 4.46."""

    def __init__(self, form, loss):
        super().__init__()
        self.head = nn.Linear(HIDDEN, WORDS, bias=False, dtype=torch.bfloat16)
        self.form, self.loss = form, loss

    def forward(self, hidden):
        logits = self.head(hidden)
        if self.form != "early":
            return {"loss": FORMS[self.form](logits, self.loss), "logits": logits}
        logits = logits.float()
        return {"loss": shifted(logits, self.loss), "logits": logits}


FORMS = {"wide": wide, "wide-shifted": shifted, "as-is": as_is}


def step(form, loss):
    model = Model(form, loss)
    hidden = torch.randn(BATCH, SEQ, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with Counting() as counting:
        model(hidden)["loss"].backward()
    return counting.most / (TOKENS * WORDS)


for form in ("wide", "early", "wide-shifted"):
    print(form, step(form, plain), step(form, fused))
print("split", step("as-is", split))
