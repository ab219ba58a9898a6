"""Trace a net of Caffe from its text: a net's or a solver's ``.prototxt``.

Standard library and torch only: the model is rebuilt, Caffe is not needed.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, os.pardir, name) for name in ("rebuilt", "torch")]

from torch_worker import main


def subject(request):
    """The net that a request names."""
    from caffe_net import Net, read_net
    from rebuilt_subjects import RebuiltSubject

    scheme, colon, rest = request["entry"].partition(":")
    message, optimizer = read_net(rest if colon and scheme == "caffe" else request["entry"])
    is_trained = request["task"] == "train"
    net = Net(message, is_trained=is_trained, side=request.get("image_size"))
    outputs = net.outputs[0] if len(net.outputs) == 1 else net.outputs
    side = request.get("image_size") if net.is_resized else None
    return RebuiltSubject(net.program, outputs, loss=net.loss, optimizer=optimizer, side=side)


if __name__ == "__main__":
    main(subject)
