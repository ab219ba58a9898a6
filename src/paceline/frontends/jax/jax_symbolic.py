"""One trace for every batch: its size is a symbol, and a number afterwards.

Standard library and jax only. JAX traces shapes that are polynomials of a symbol, so that a model
is run once instead of once per batch.
"""

import jax
from jax import export

_NAME = "batch"


def seen_at(subject, task, batches):
    """What a trace tells at each of some batches; None where the model wants a number.

    Args:
        subject: Of `jax_models`.
        task: ``train`` or ``infer``.
        batches: Batches, two at least.
    """
    try:
        (symbol,) = export.symbolic_shape(_NAME)
        shapes = [subject.inputs(batch, 1) for batch in batches[:2]]
        inputs = jax.tree.map(lambda *two: _with_symbol(symbol, batches, *two), *shapes)
        rows = subject.rows_of(task, inputs)
        views = [rows.seen(lambda extent, at=batch: _number(extent, at)) for batch in batches]
    # Whatever a model does with a size that is no number, it may do with a number.
    except Exception:  # noqa: BLE001
        return None
    return views, rows.modules


def _with_symbol(symbol, batches, first, second):
    """A shape whose extents are multiples of the symbol where two batches differ."""
    extents = [
        one if one == other else (one // batches[0]) * symbol
        for one, other in zip(first.shape, second.shape)
    ]
    grown = [_number(extent, batches[1]) for extent in extents]
    if grown != list(second.shape):
        raise ValueError("an extent is no multiple of the batch")
    return jax.ShapeDtypeStruct(tuple(extents), first.dtype)


def _number(extent, batch):
    """An extent at a batch."""
    return extent if isinstance(extent, int) else int(extent._evaluate({_NAME: batch}))
