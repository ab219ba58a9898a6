"""The launcher's words through torchrun's own parser, end point and back end included."""

import json
import shlex
import sys
from urllib.parse import urlsplit

from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
from torch.distributed.run import config_from_args, parse_args


def complaints_of(text):
    """What torchrun says of the line that starts it, with what the shell would put in."""
    line = next(line for line in text.splitlines() if line.startswith("exec "))
    line = (
        line.replace('"${HEAD_ADDRESS}"', "10.0.0.1")
        .replace('"${is_host}"', "true")
        .replace('"${local_address}"', "10.0.0.2")
    )
    words = shlex.split(line)[2:]
    try:
        config, _, _ = config_from_args(parse_args(words))
        if config.rdzv_backend not in rendezvous_handler_registry._registry:
            return ["no such rendezvous back end"]
        end_point = urlsplit("//" + config.rdzv_endpoint)
        return [] if end_point.port else ["no port"]
    except (SystemExit, ValueError) as error:
        return [f"{type(error).__name__}: {error}"]


for line in sys.stdin:
    target, texts = json.loads(line)
    print(json.dumps([c for text in texts for c in complaints_of(text)]), flush=True)
