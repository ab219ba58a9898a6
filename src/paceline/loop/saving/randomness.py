"""States of the generators of random numbers that a training process draws from."""

import base64
import random
import sys

import torch


def states():
    """Those of this process, as JSON has it."""
    found = {
        "python": _of_python(random.getstate()),
        "torch": _text(torch.get_rng_state()),
        "cuda": [],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = [_text(torch.cuda.get_rng_state())]
    if "numpy" in sys.modules:
        kind, keys, position, has_gauss, gauss = sys.modules["numpy"].random.get_state()
        found["numpy"] = [kind, keys.tolist(), position, has_gauss, gauss]
    return found


def restore(found):
    """Put the generators back to where they were."""
    version, numbers, gauss = found["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(_tensor(found["torch"]))
    if found["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(found["cuda"][0]))
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(found["numpy"]))


def begin(seed):
    """Seed the generators of a rank that no save knows."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


def _of_python(state):
    version, numbers, gauss = state
    return [version, list(numbers), gauss]


def _text(tensor):
    return base64.b64encode(bytes(tensor.tolist())).decode("ascii")


def _tensor(text):
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
