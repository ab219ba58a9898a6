"""A front end that rebuilds: it translates widths into operators of torch.

Entry ``layers:20x8x5``. What every such worker looks like: a path, a translation, and `main`.
"""

import os
import sys

SHIPPED = os.environ["PACELINE_FRONT_ENDS"]
sys.path[1:1] = [os.path.join(SHIPPED, name) for name in ("rebuilt", "torch")]

import torch
from rebuilt_program import FREE_BATCH, Program
from rebuilt_subjects import RebuiltSubject
from torch_entries.request_errors import RequestError
from torch_worker import main


def subject(request):
    """The model that an entry names."""
    widths = request["entry"].partition(":")[2].split("x")
    if not all(width.isdigit() for width in widths):
        raise RequestError("bad-model", f"`{request['entry']}` is no list of widths")
    program, (first, *rest) = Program(), map(int, widths)
    x = program.input((FREE_BATCH, first))
    for number, width in enumerate(rest):
        path = f"dense{number}"
        weight = program.parameter(path, "weight", (width, x.shape[-1]))
        x = program.run(torch.nn.functional.linear, x, weight, path=path)
    return RebuiltSubject(program, x)


if __name__ == "__main__":
    main(subject)
