"""`find_batch`: the largest batch that a step of the user's takes, on all ranks without a hang."""

import gc

import torch
import torch.distributed as dist

from paceline.loop.errors import LoopError


def find_batch(step, *, start=1, limit=65536):
    """The largest batch that every rank can take, tried by doubling, then by halves between.

    All ranks try the same batch, and hear of each other before the next one: a rank that runs out
    of memory leaves none of the others waiting. The step must not talk to other ranks; call the
    plain model in it, not the one that DDP has wrapped, and keep an eighth of the memory for its
    buckets.

    Args:
        step: Function of a batch that makes inputs, runs forward and backward, and returns nothing.
        start: The first batch tried.
        limit: The largest.

    Returns:
        The batch, the same on all ranks.

    Raises:
        LoopError: Not even the first one fits.
    """
    if start < 1 or limit < start:
        raise LoopError("batches from %d to %d are none" % (start, limit), "begin at 1 or more")
    fits, fails = 0, limit + 1
    batch = start
    while fits + 1 < fails:
        if _all(_try(step, batch)):
            fits, batch = batch, min(2 * batch, limit) if fails > limit else (batch + fails) // 2
            if fits == limit:
                break
        else:
            fails, batch = batch, (fits + batch) // 2
            if fits == 0 and fails <= start:
                break
    if not fits:
        raise LoopError(
            "a batch of %d does not fit" % start, "begin lower, or use `fsdp` or recompute"
        )
    return fits


def _try(step, batch):
    """Whether a step of this rank fits."""
    try:
        step(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return True
    except (torch.OutOfMemoryError, MemoryError):
        pass
    except RuntimeError as error:
        if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
    # Frames of the failed step hold its tensors.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False


def _all(fits):
    if not (dist.is_available() and dist.is_initialized()):
        return fits
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    answer = torch.tensor(int(fits), device=device)
    dist.all_reduce(answer, op=dist.ReduceOp.MIN)
    return bool(answer.item())
