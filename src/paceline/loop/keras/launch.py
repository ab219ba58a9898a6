"""Start workers of TensorFlow on this machine, and all of them anew when one is lost.

    python launch.py WORKERS RESTARTS PROGRAM …

What torchrun is for PyTorch. Each worker has ``TF_CONFIG``, ``RANK`` and ``WORLD_SIZE``, and one
GPU where there are some. Standard library only.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

_POLL_S = 0.1
#: How long workers may go on after one has failed, and after a signal came.
_PATIENCE_S = 60.0
_PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def main(words):
    """Run workers until all have ended well; the exit status."""
    count, restarts, program = int(words[0]), int(words[1]), words[2:]
    heard = []
    for number in _PASSED_ON:
        signal.signal(number, lambda one, _frame: heard.append(one))
    for left in range(restarts, -1, -1):
        failed = _once(program, count, heard)
        if failed is None:
            return 0
        is_ended = signal.SIGTERM in heard or signal.SIGHUP in heard
        if not left or is_ended:
            return failed
        print("paceline: a worker ended with %d; all start again" % failed, file=sys.stderr)
    return 1


def _once(program, count, heard):
    """One life of all workers: None, or the status of the first that failed."""
    places = ["127.0.0.1:%d" % one for one in _free_ports(count)]
    workers = [
        subprocess.Popen(program, env=environment_of(rank, places, os.environ))
        for rank in range(count)
    ]
    failed, until_s, passed_on = None, None, 0
    try:
        while None in [one.poll() for one in workers]:
            while passed_on < len(heard):
                _signal(workers, heard[passed_on])
                passed_on += 1
            ended = [one.returncode for one in workers if one.returncode not in (None, 0)]
            if ended and failed is None:
                is_heard = any(one in heard for one in (signal.SIGTERM, signal.SIGHUP))
                failed, until_s = ended[0], time.monotonic() + _PATIENCE_S * is_heard
            if until_s is not None and time.monotonic() >= until_s:
                _signal(workers, signal.SIGKILL)
            time.sleep(_POLL_S)
    finally:
        _signal(workers, signal.SIGKILL)
    ended = [one.wait() for one in workers]
    return failed if failed is not None else next((one for one in ended if one), None)


def environment_of(rank, places, environment):
    """What a worker is started with.

    Args:
        rank: Of the worker.
        places: Address of each worker.
        environment: Without it.

    >>> environment_of(1, ["a:1", "b:2"], {"CUDA_VISIBLE_DEVICES": "4,6"})["CUDA_VISIBLE_DEVICES"]
    '6'
    """
    task = {"cluster": {"worker": places}, "task": {"type": "worker", "index": rank}}
    own = {"TF_CONFIG": json.dumps(task), "RANK": str(rank), "WORLD_SIZE": str(len(places))}
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    devices = [one for one in visible.split(",") if one and one != "-1"]
    if not visible and os.path.exists("/dev/nvidia%d" % (len(places) - 1)):
        devices = [str(one) for one in range(len(places))]
    if len(devices) >= len(places):
        own["CUDA_VISIBLE_DEVICES"] = devices[rank]
    return dict(environment, **own)


def _free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _signal(workers, number):
    for one in workers:
        if one.poll() is None:
            one.send_signal(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
