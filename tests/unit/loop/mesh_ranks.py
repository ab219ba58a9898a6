"""Starting ranks of a test."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER.parents[2] / "src"


def join():
    """Join the ranks that `start_ranks` started: over a file, since a port may be taken."""
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", os.environ["MET"], rank=rank, world_size=ranks)


def start_ranks(script, num_ranks, *arguments, timeout_s=3600):
    """What the ranks of a script print; each has one thread, and all end with the first failure."""
    with tempfile.TemporaryDirectory() as met:
        return _said(f"file://{met}/met", script, num_ranks, arguments, timeout_s)


def _said(met, script, num_ranks, arguments, timeout_s):
    environment = {
        **os.environ, "PYTHONPATH": str(_SOURCE), "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore", "WORLD_SIZE": str(num_ranks), "MET": met,
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, str(_FOLDER / script), *arguments],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(num_ranks)
    ]  # fmt: skip
    try:
        said = [one.communicate(timeout=timeout_s)[0] for one in ranks]
    finally:
        for one in ranks:
            one.kill()
    failed = [text for one, text in zip(ranks, said, strict=True) if one.returncode]
    assert not failed, failed[0][-3000:]
    return "".join(said)


def mesh_differences(num_ranks, cases):
    """Largest difference of the loss from one process, per case; or why a case was refused."""
    said = start_ranks("mesh_worker.py", num_ranks, json.dumps(cases))
    line = next(one for one in said.splitlines() if one.startswith("ANSWERS "))
    return json.loads(line[8:])
