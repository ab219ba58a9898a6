"""Context parallel: ranks hold a first and a last piece of each sequence; keys go round a ring."""

import types

import torch
import torch.distributed as dist
from gloo_worker import SPEC, batch_of, loss_of, loss_of_two_steps, make_model, train_on

#: Long enough that activations are most of what is alive.
SEQ = 512
SPEC_OF_CONTEXT = {**SPEC, "positions": SEQ}
SENT = []
_ATEN = torch.ops.aten
_FORWARD = _ATEN._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward


def batch():
    return batch_of(0, length=SEQ)


def positions(rank, world):
    """Of the rank's tokens: pieces ``rank`` and ``2 world - 1 - rank`` of ``2 world``."""
    pieces = torch.arange(SEQ).view(2 * world, -1)
    return torch.cat([pieces[rank], pieces[2 * world - 1 - rank]])


class Passing:
    """One message to the next rank of the ring, and one from the rank before."""

    def __init__(self, tensor):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.sent, self.got = tensor, torch.empty_like(tensor)
        SENT.append(["send_recv", tensor.numel() * tensor.element_size()])
        operations = [
            dist.P2POp(dist.isend, self.sent, (rank + 1) % world),
            dist.P2POp(dist.irecv, self.got, (rank - 1) % world),
        ]
        self.works = dist.batch_isend_irecv(operations)

    def received(self):
        for work in self.works:
            work.wait()
        return self.got


def meeting(step):
    """Queries and keys of a rank that see each other at a step of the ring, and the mask.

    Keys of an earlier rank: of its pieces the first alone, and all queries see it. Of a later one:
    both, but only the last piece of queries sees them.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    half, source = SEQ // world // 2, (rank - step) % world
    if step == 0:
        return slice(None), slice(None), True
    return (slice(None), slice(half), False) if source < rank else (
        slice(half, None), slice(None), False)  # fmt: skip


class Ring(torch.autograd.Function):
    """Causal attention of a rank's queries with the keys of all ranks (Liu et al., 2310.01889)."""

    @staticmethod
    def forward(ctx, q, k, v):
        world, kv = dist.get_world_size(), torch.stack([k, v])
        for step in range(world):
            passing = Passing(kv) if step < world - 1 else None
            rows, columns, is_causal = meeting(step)
            made, weight = _FORWARD(
                q[:, :, rows], kv[0][:, :, columns], kv[1][:, :, columns], 0.0, is_causal
            )
            if step == 0:
                out, total = made, weight
            else:
                both = torch.logaddexp(total[:, :, rows], weight)
                old, new = ((x - both).exp()[..., None] for x in (total[:, :, rows], weight))
                out[:, :, rows] = out[:, :, rows] * old + made * new
                total[:, :, rows] = both
            kv = passing.received() if passing else kv
        ctx.save_for_backward(q, k, v, out, total)
        return out

    @staticmethod
    def backward(ctx, upstream):
        """Keys go round again, and gradients of them behind, a step later, until they are home."""
        q, k, v, out, total = ctx.saved_tensors
        world, kv = dist.get_world_size(), torch.stack([k, v])
        home, behind, to_q = None, None, torch.zeros_like(q)
        for step in range(world):
            passing = Passing(kv) if step < world - 1 else None
            rows, columns, is_causal = meeting(step)
            parts = _BACKWARD(
                upstream[:, :, rows], q[:, :, rows], kv[0][:, :, columns], kv[1][:, :, columns],
                out[:, :, rows], total[:, :, rows], 0.0, is_causal,
            )  # fmt: skip
            to_q[:, :, rows] += parts[0]
            mine = torch.zeros_like(kv)
            mine[:, :, :, columns] = torch.stack(parts[1:])
            if step == 0:
                home = mine
            else:
                behind = Passing(mine if behind is None else mine + behind.received())
            kv = passing.received() if passing else kv
        to_k, to_v = home if behind is None else home + behind.received()
        return to_q, to_k, to_v


def ring(q, k, v, **_):
    return Ring.apply(q, k, v)


def embed_at(places):
    def embed(self, tokens, num_past):
        return self.dropout(self.embedding(tokens) + self.position(places))

    return embed


def run_context(path, rank, world):
    places, model = positions(rank, world), make_model(path, SPEC_OF_CONTEXT)
    model._embed = types.MethodType(embed_at(places), model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: meet(p, world))
    model.register_forward_pre_hook(lambda *_: SENT.clear())
    inputs, targets = (tokens[:, places] for tokens in batch())
    functional, whole = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = ring
    try:
        loss, calls, kept = train_on(model, inputs, targets)
    finally:
        functional.scaled_dot_product_attention = whole
    return loss, SENT + calls, kept, list(range(world))


def meet(parameter, world):
    """The mean over ranks, each of which has as many tokens."""
    dist.all_reduce(parameter.grad)
    parameter.grad /= world


def reference_loss(path, ranks):
    """The same two steps in one process on whole sequences."""
    inputs, targets = batch()
    model = make_model(path, SPEC_OF_CONTEXT)
    return loss_of_two_steps(model, lambda one: loss_of(one(inputs), targets))


MODES = {"context": run_context}
REFERENCES = {"context": reference_loss}
