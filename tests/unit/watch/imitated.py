"""Stand-ins for `kubectl`, `sky` and its `ssh`, where no cluster and no cloud can be had.

They take the words that the real programs take and run the job on this machine. What they print is
written after the programs' reference and source, and recorded from no cluster.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["IMITATED"])
#: The run's folder in a pod stands for one of this machine.
POD, HERE = "/paceline/run", str(STATE / "run")


def main(program, words):
    return PROGRAMS[program](words)


def kubectl(words):
    verb, rest = words[0], words[1:]
    if verb == "create":
        (path,) = [word.partition("=")[2] for word in rest if word.startswith("--filename=")]
        job = json.loads(Path(path).read_text())
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        start([word.replace(POD, HERE) for word in command])
        print(f"job.batch/{job['metadata']['name']}")
    elif verb == "exec":
        if not state("pid"):
            sys.exit("error: unable to upgrade connection: container not found")
        inside = [word.replace(POD, HERE) for word in rest[rest.index("--") + 1 :]]
        inside = [re.sub("^kill -TERM 1$", f"kill -TERM {state('pid')}", word) for word in inside]
        return subprocess.run(inside).returncode
    elif verb == "get":
        status = ended()
        print({None: "/1", 0: "SuccessCriteriaMet Complete/"}.get(status, "FailureTarget Failed/"))
    return 0


def sky(words):
    verb, rest = words[0], words[1:]
    if verb == "launch":
        task = json.loads(Path(rest[-1]).read_text())
        for there, here in task["file_mounts"].items():
            shutil.copytree(here, there.replace("~", str(STATE)))
        start(["bash", "-c", task["run"]])
        print("\x1b[33mJob submitted, ID: 1\x1b[0m")
    elif verb == "logs":
        print("Job 1: " + {None: "RUNNING", 0: "SUCCEEDED"}.get(ended(), "FAILED"))
        return 1
    elif verb == "cancel":
        os.killpg(int(state("pid")), signal.SIGTERM)
    return 0


def ssh(words):
    environment = {**os.environ, "HOME": str(STATE)}
    return subprocess.run(["sh", "-c", words[-1]], cwd=STATE, env=environment).returncode


def start(command):
    """Run a command beside us; its status is kept once it has one."""
    keep = [sys.executable, __file__, "keep", *command]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    child = subprocess.Popen(keep, start_new_session=True, **quiet)
    (STATE / "pid").write_text(str(child.pid))


def keep(command):
    environment = {**os.environ, "HOME": str(STATE)}
    child = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    (STATE / "status").write_text(str(child.wait()))


def state(name):
    path = STATE / name
    return path.read_text() if path.exists() else ""


def ended():
    return int(state("status")) if state("status") else None


PROGRAMS = {"kubectl": kubectl, "sky": sky, "ssh": ssh, "keep": keep}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
