"""Run a command as on another machine: by other kernels of linear algebra, without vector units.

OpenBLAS and numpy choose their kernels by the processor they find. What is computed must not
depend on that choice beyond its last bits, so some tests run once more under another one:

    python tools/other_kernels.py python -m pytest tests/unit/prediction
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module


def other_kernels(features: Mapping[str, bool], dispatched: Sequence[str]) -> dict[str, str]:
    """Environment variables that choose the kernels of an older processor.

    Args:
        features: What numpy knows of this processor: each feature, and whether it is there.
        dispatched: Those by which numpy chooses among its own kernels.

    >>> other_kernels({"AVX2": True, "AVX512F": True, "X86_V4": True}, ["X86_V4", "AVX512_SPR"])
    {'NPY_DISABLE_CPU_FEATURES': 'X86_V4', 'OPENBLAS_CORETYPE': 'Haswell'}
    """
    present = " ".join(name for name in dispatched if features.get(name))
    chosen = {"NPY_DISABLE_CPU_FEATURES": present} if present else {}
    if features.get("AVX512F"):
        return chosen | {"OPENBLAS_CORETYPE": "Haswell"}
    return chosen | ({"OPENBLAS_CORETYPE": "Prescott"} if features.get("AVX2") else {})


def main(command: Sequence[str]) -> None:
    """Become the command, under the other kernels."""
    # Numpy tells of its kernels here alone; the module has no annotations.
    kernels = import_module("numpy._core._multiarray_umath")
    chosen = other_kernels(kernels.__cpu_features__, kernels.__cpu_dispatch__)
    print("other kernels:", " ".join(f"{k}={v!r}" for k, v in chosen.items()), file=sys.stderr)
    os.execvpe(command[0], list(command), os.environ | chosen)


if __name__ == "__main__":
    main(sys.argv[1:])
