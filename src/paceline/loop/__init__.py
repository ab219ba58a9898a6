"""Three functions for the user's own training loop: ``resume``, ``parallelize`` and ``feed``.

Standard library, torch and what a reader needs; nothing of the package is imported, so that this
folder can be copied beside a launch file. Each function is loaded on first use.
"""

from importlib import import_module

#: Where each public name is defined.
HOMES = {
    "IMAGENET": "feeding.feeder",
    "LoopError": "errors",
    "clip_gradients": "parallel.microbatches",
    "epochs": "resuming",
    "feed": "feeding.feeder",
    "find_batch": "largest_batch",
    "forward_backward": "parallel.microbatches",
    "mean_loss": "parallel.microbatches",
    "parallelize": "parallel.parallelize",
    "resume": "resuming",
}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in HOMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(import_module(__name__ + "." + HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
