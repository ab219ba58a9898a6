"""Keras models in Keras' own data parallelism, taken up where they were.

Keras, its backend, NumPy and safetensors; nothing of PyTorch is imported. Each function is loaded
on first use.
"""

from importlib import import_module

#: Where each public name is defined.
HOMES = {
    "LoopError": "paceline.loop.errors",
    "parallelize": "paceline.loop.keras.replicas",
    "resume": "paceline.loop.keras.fitting",
}

__all__ = sorted(HOMES)


def __getattr__(name):
    """Load a public name on first use (PEP 562)."""
    if name not in HOMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(import_module(HOMES[name]), name)
