"""Trace a Keras model: a ``.keras`` file, an application of Keras, or one of a user's function.

Standard library and torch only: the model is rebuilt, Keras is not needed here.
"""

import json
import lzma
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, os.pardir, name) for name in ("rebuilt", "torch")]

from torch_worker import main

#: Settings of the models of ``keras.applications``, written by ``tools/facts/keras_models.py``.
APPLICATIONS = os.path.join(HERE, "applications.json.xz")
#: What every application halves its pictures by, so that paddings stay as they are.
_MULTIPLE = 32


def subject(request):
    """The model that a request names."""
    from keras_compiled import loss_of, optimizer_of
    from keras_graph import Building
    from rebuilt_subjects import RebuiltSubject

    settings, shape = _settings(request)
    if shape and not settings.get("build_config"):
        settings["build_config"] = {"input_shape": shape}
    building = Building(request.get("image_size"))
    outputs = building.outermost(settings)
    compiled = settings.get("compile_config") or {}
    loss, taken = loss_of(compiled)
    made = RebuiltSubject(
        building.program, outputs, loss=loss, optimizer=optimizer_of(compiled),
        side=request.get("image_size") if building.is_resized else None,
    )  # fmt: skip
    made.taken = ", ".join(filter(None, (*building.taken, taken)))
    return made


def _settings(request):
    """(settings, shape of the input where they do not say it)."""
    from keras_file import parsed, read_settings

    entry = request["entry"]
    if request.get("described"):
        with open(request["described"], "rb") as file:
            described = parsed(file.read(), entry)
        return described["settings"], described.get("shape")
    scheme, colon, name = entry.partition(":")
    if colon and scheme == "keras" and not name.endswith(".keras"):
        return _application(name, request), None
    return read_settings(name if colon and scheme == "keras" else entry), None


def _application(name, request):
    from torch_entries.request_errors import RequestError, of_size

    with lzma.open(APPLICATIONS) as file:
        known = json.load(file)["models"]
    keys = {_key(one): one for one in known}
    if _key(name) not in keys:
        raise RequestError("unknown-model", json.dumps({"name": name, "known": sorted(known)}))
    side = request.get("image_size") or _MULTIPLE
    if side % _MULTIPLE:
        near = max(_MULTIPLE, side // _MULTIPLE * _MULTIPLE)
        raise of_size("its sides are multiples of %d" % _MULTIPLE, "give --image-size %d" % near)
    return known[keys[_key(name)]]


def _key(name):
    return name.rpartition(".")[2].lower().replace("_", "").replace("-", "")


if __name__ == "__main__":
    main(subject)
