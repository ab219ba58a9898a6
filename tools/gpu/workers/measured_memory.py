"""Run one of the memory jobs on a device and print what it took, as one line of JSON.

Usage: python measured_memory.py JOB --batch 8 --device cuda --counts process|tensors
With ``process`` the job runs as users run it, and stays until standard input ends, so that the
caller can ask the driver. With ``tensors`` a profiler counts live tensors, and the matrix library
is told to do without its workspace.
"""

import argparse
import json
import os
import platform
import sys
import warnings

# Read by cuBLAS when it starts, so before torch is imported.
if "tensors" in sys.argv:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"

import torch
from memory_models import FAST, SLOW, cross_entropy
from profiled_memory import peak_bytes, train


def main():
    """Run the job that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=sorted({**FAST, **SLOW}))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--counts", choices=("process", "tensors"), required=True)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    build, inputs = {**FAST, **SLOW}[asked.job]
    job = (build, lambda: inputs(asked.batch), cross_entropy, torch.optim.AdamW, asked.device)
    if asked.counts == "tensors":
        print(json.dumps({"live_bytes": peak_bytes(*job)}), flush=True)
        return
    train(*job)
    print(json.dumps(_figures(asked.device)), flush=True)
    sys.stdin.read()


def _figures(device):
    figures = {
        "framework_version": torch.__version__,
        "python_version": platform.python_version(),
        "platform_version": torch.version.cuda,
    }
    if device == "cuda":
        torch.cuda.synchronize()
        figures["allocated_bytes"] = torch.cuda.max_memory_allocated()
        figures["reserved_bytes"] = torch.cuda.max_memory_reserved()
    return figures


if __name__ == "__main__":
    main()
