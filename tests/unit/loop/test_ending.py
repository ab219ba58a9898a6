"""A process whose gloo threads still let go of tensors ends with status 0."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

#: Two ranks as two groups of one process. The interpreter never gives its lock away while it runs,
#: so that threads of both have tensors left when it ends: without waiting it ended by SIGABRT.
_SCRIPT = """
import sys
import threading

import torch
import torch.distributed as dist

from paceline.loop.ending import leave_in_order

leave_in_order()
store, groups = dist.HashStore(), [None, None]


def join(rank):
    groups[rank] = dist.ProcessGroupGloo(store, rank, 2)


joining = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
for one in joining:
    one.start()
for one in joining:
    one.join()
sys.setswitchinterval(1000)
for _ in range(40):
    last = [group.allreduce([torch.zeros(3)]) for group in groups]
last.pop().wait()
last = None
"""


def test_threads_of_groups_let_go_before_the_interpreter_ends():
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
