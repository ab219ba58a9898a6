"""The protocol of every worker: one request in, one result file out.

Standard library only. Reads one JSON line on standard input, writes JSON lines (progress, done,
described, error) on the original standard output, and the trace itself to the file that the
request names. What the user's code prints goes to standard error.
"""

import json
import os
import sys
import traceback

from torch_entries.made_models import OtherFramework

PROTOCOL = 1


def answer_one(serve):
    """Answer the request on standard input by ``serve(request, progress)``."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = json.loads(sys.stdin.readline())
    try:
        answer = serve(request, lambda text: _send(channel, event="progress", message=text))
        _write(request["output"], answer)
        _send(channel, event="done", protocol=PROTOCOL)
    except OtherFramework as found:
        _write(request["description"], found.description)
        _send(channel, event="described", front_end=found.front_end)
    except Exception as error:  # noqa: BLE001  The edge: whatever is raised is sent to the parent.
        _send(channel, **error_event(error))


def error_event(error):
    """What the parent is told of an error: in words if it has a kind, else with its traceback."""
    if getattr(error, "kind", None):
        return {"event": "error", "kind": error.kind, "message": str(error), "details": ""}
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = "%s: %s" % (type(error).__name__, error)
    return {"event": "error", "kind": "raised", "message": message, "details": details[-4000:]}


def _write(path, answer):
    with open(path, "w") as file:
        json.dump(answer, file, separators=(",", ":"))


def _send(channel, **event):
    channel.write(json.dumps(event) + "\n")
    channel.flush()
