"""Trace the model that the header of a GGUF file describes; its weights are not read.

Standard library, torch and transformers only.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, os.pardir, "torch")]

from torch_worker import main


def subject(request):
    """The model that a request names.

    Raises:
        RequestError: The header cannot be read, or describes another model than its tensors hold.
    """
    from gguf_config import num_parameters, settings_of, stored
    from gguf_header import read_header
    from torch_entries.request_errors import RequestError
    from torch_transformers.families import settings_subject

    scheme, colon, rest = request["entry"].partition(":")
    header = read_header(rest if colon and scheme == "gguf" else request["entry"])
    found = settings_subject(settings_of(header), request)
    held, described = num_parameters(header), sum(p.numel() for p in found.model.parameters())
    if held != described:
        said = "its tensors hold %d parameters, and its keys describe a model of %d"
        raise RequestError("bad-gguf", said % (held, described))
    found.taken, found.released = stored(header)
    return found


if __name__ == "__main__":
    main(subject)
