"""Starting ranks of a test."""

import json
import os
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent


def join():
    """Join the ranks that `start_ranks` started: over a file, since a port may be taken."""
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", os.environ["MET"], rank=rank, world_size=ranks)


def start_ranks(script, num_ranks, *arguments):
    """What the ranks of a script print; each has one thread, and what fails is said."""
    with tempfile.TemporaryDirectory() as met:
        return _said(f"file://{met}/met", script, num_ranks, arguments)


def _said(met, script, num_ranks, arguments):
    from warm_workers import WORKERS

    environment = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(num_ranks), "MET": met}
    with tempfile.TemporaryFile("w+") as talk:
        ranks = [
            WORKERS.start_script(
                _FOLDER / script, *arguments, talk=talk,
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(num_ranks)
        ]  # fmt: skip
        try:
            said = [one.stdout.read() for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.stdin.close()
                one.stdout.close()
        failed = [one.wait() for one in ranks]
        talk.seek(0)
        assert not any(failed), talk.read()[-3000:]
    return "".join(said)


def mesh_differences(num_ranks, cases):
    """Largest difference of the loss from one process, per case; or why a case was refused."""
    said = start_ranks("mesh_worker.py", num_ranks, json.dumps(cases))
    line = next(one for one in said.splitlines() if one.startswith("ANSWERS "))
    return json.loads(line[8:])
