"""Trace an ONNX file: its nodes run as PyTorch functions on meta tensors.

Standard library and torch only; runs in the Python that has torch.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(_HERE), "torch"))

if __name__ == "__main__":
    import torch_worker
    from onnx_subject import build_subject

    torch_worker.main(build_subject)
