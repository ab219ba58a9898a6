"""Starting ranks of a test."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER.parents[2] / "src"


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_ranks(script, num_ranks, *arguments, timeout_s=3600):
    """What the ranks of a script print; each has one thread, and all end with the first failure."""
    environment = {
        **os.environ, "PYTHONPATH": str(_SOURCE), "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore", "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()),
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
