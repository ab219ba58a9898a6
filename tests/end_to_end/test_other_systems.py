"""Planning needs nothing that only POSIX has: it runs on Windows and macOS as it does here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Modules and calls that Windows lacks are taken away before paceline is imported.
WITHOUT_POSIX = """
import os, sys
LACKING = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name in LACKING:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuses())
for name in LACKING & set(sys.modules):
    del sys.modules[name]
for name in ("sysconf", "getuid", "geteuid", "fork", "killpg", "setsid", "statvfs",
             "sched_getaffinity", "getpgid"):
    if hasattr(os, name):
        delattr(os, name)
from paceline.app.main import main
for command in (
    "plan resnet50 --deadline 24h --cloud lambda -o plan.yaml",
    "predict gpt2 --device a100 --batch 8",
    "scale gpt2 --device h100 --counts 1,8",
    "offers h100",
    "bill aws/p4d.24xlarge 36h",
    "deploy plan.yaml --to slurm --command=train.sh",
):
    status = main(command.split())
    assert status == 0, (command, status)
"""


def test_planning_runs_without_what_only_posix_has(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
