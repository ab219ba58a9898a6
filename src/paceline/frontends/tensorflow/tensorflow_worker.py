"""Trace a SavedModel of TensorFlow: its graph runs as PyTorch functions on meta tensors.

Standard library and torch only; runs in the Python that has torch. TensorFlow is not needed.
"""

import os
import sys

_FRONT_ENDS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [os.path.join(_FRONT_ENDS, name) for name in ("torch", "onnx", "rebuilt")]

if __name__ == "__main__":
    import torch_worker
    from tensorflow_subject import build_subject

    torch_worker.main(build_subject)
