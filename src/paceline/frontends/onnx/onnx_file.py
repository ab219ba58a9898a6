"""Read the graph of an ONNX file: nodes, shapes, small constants. Weights are never read.

Standard library only. Field numbers are those of onnx.proto (https://github.com/onnx/onnx).
"""

import os
import struct

from protobuf_wire import Malformed, Range, Reader, many, once

#: Names of PyTorch's element types, and bytes each.
DTYPES = {
    1: ("float32", 4), 2: ("uint8", 1), 3: ("int8", 1), 4: ("uint16", 2), 5: ("int16", 2),
    6: ("int32", 4), 7: ("int64", 8), 9: ("bool", 1), 10: ("float16", 2), 11: ("float64", 8),
    12: ("uint32", 4), 13: ("uint64", 8), 14: ("complex64", 8), 15: ("complex128", 16),
    16: ("bfloat16", 2), 17: ("float8_e4m3fn", 1), 18: ("float8_e4m3fn", 1),
    19: ("float8_e5m2", 1), 20: ("float8_e5m2", 1), 21: ("uint8", 0.5), 22: ("int8", 0.5),
    25: ("uint8", 0.25), 26: ("int8", 0.25),
}  # fmt: skip
_STRING = 8
_FORMATS = {
    "float32": "f", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "int32": "i",
    "int64": "q", "bool": "?", "float16": "e", "float64": "d", "uint32": "I", "uint64": "Q",
}  # fmt: skip
_EXTERNAL = 1
#: Elements of a constant that may be sizes, positions or settings and is therefore read.
MOST_VALUES = 65_536
#: Largest extent and element count that any machine could hold.
MOST_ELEMENTS = 1 << 50
_OLDEST, _NEWEST = 11, 23


def _entry():
    return {1: once("key", "text"), 2: once("value", "text")}


def _dim():
    return {1: once("value", "int"), 2: once("name", "text")}


def _shape():
    return {1: many("dim", _dim)}


def _tensor_type():
    return {1: once("dtype", "int"), 2: once("shape", _shape)}


def _type():
    return {1: once("tensor", _tensor_type), 4: once("sequence", "range")}


def _value_info():
    return {1: once("name", "text"), 2: once("type", _type)}


def _tensor():
    return {
        1: many("dims", "int"), 2: once("dtype", "int"), 4: many("floats", "float"),
        5: many("int32s", "int"), 7: many("int64s", "int"), 8: once("name", "text"),
        9: once("raw", "range"), 10: many("doubles", "double"), 11: many("uint64s", "int"),
        13: many("external", _entry), 14: once("location", "int"),
    }  # fmt: skip


def _attribute():
    return {
        1: once("name", "text"), 2: once("f", "float"), 3: once("i", "int"), 4: once("s", "text"),
        5: once("t", _tensor), 6: once("g", _graph), 7: many("floats", "float"),
        8: many("ints", "int"), 9: many("strings", "text"), 20: once("type", "int"),
        21: once("reference", "text"), 22: once("sparse", "range"),
    }  # fmt: skip


def _node():
    return {
        1: many("inputs", "text"), 2: many("outputs", "text"), 3: once("name", "text"),
        4: once("op", "text"), 5: many("attributes", _attribute), 7: once("domain", "text"),
        9: many("notes", _entry),
    }  # fmt: skip


def _graph():
    return {
        1: many("nodes", _node), 2: once("name", "text"), 5: many("initializers", _tensor),
        11: many("inputs", _value_info), 12: many("outputs", _value_info),
        15: many("sparse", "range"),
    }  # fmt: skip


def _opset():
    return {1: once("domain", "text"), 2: once("version", "int")}


def _function():
    return {
        1: once("name", "text"), 4: many("inputs", "text"), 5: many("outputs", "text"),
        6: many("attribute_names", "text"), 7: many("nodes", _node),
        9: many("opsets", _opset), 10: once("domain", "text"), 11: many("defaults", _attribute),
    }  # fmt: skip


def _model():
    return {
        2: once("producer", "text"), 7: once("graph", _graph), 8: many("opsets", _opset),
        25: many("functions", _function),
    }  # fmt: skip


class Refused(Exception):
    """A file that is well formed and cannot be used; the message is for the user."""

    def __init__(self, message, kind="bad-file"):
        super().__init__(message)
        self.kind = kind


def read_model(path):
    """The model of a file, checked: (graph, opset by domain, functions by domain and name)."""
    try:
        model = Reader(path).message(_model())
    except FileNotFoundError:
        raise Refused("no file at `%s`" % path, "no-file") from None
    except OSError as error:
        raise Refused("`%s` cannot be read: %s" % (path, error.strerror), "no-file") from None
    if "graph" not in model or not model["graph"]["nodes"]:
        raise Malformed("it holds no graph")
    opsets = {one.get("domain", ""): one.get("version", 0) for one in model["opsets"]}
    opsets[""] = opsets.get("", opsets.get("ai.onnx", 0))
    if not _OLDEST <= opsets[""] <= _NEWEST:
        raise Refused(
            "it is written for opset %d; %d to %d are known" % (opsets[""], _OLDEST, _NEWEST),
            "onnx-opset",
        )
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    _check_places(model["graph"], folder)
    functions = {(f.get("domain", ""), f.get("name", "")): f for f in model["functions"]}
    return model["graph"], opsets, functions


def _check_places(graph, folder):
    """Refuse weights that a file says are outside its folder; they are never opened either way."""
    for tensor in graph["initializers"]:
        _check_place(tensor, folder)
    for node in graph["nodes"]:
        for attribute in node["attributes"]:
            if "t" in attribute:
                _check_place(attribute["t"], folder)
            if "g" in attribute:
                _check_places(attribute["g"], folder)


def _check_place(tensor, folder):
    if tensor.get("location") != _EXTERNAL:
        return
    said = {one.get("key"): one.get("value", "") for one in tensor["external"]}
    place = said.get("location", "")
    whole = os.path.realpath(os.path.join(folder, place))
    if not place or os.path.isabs(place) or not whole.startswith(folder + os.sep):
        message = "weights of `%s` lie outside its folder, at `%s`"
        raise Refused(message % (tensor.get("name", ""), place))
    for key in ("offset", "length"):
        if not said.get(key, "0").isdecimal():
            message = "weights of `%s` have a %s of `%s`"
            raise Refused(message % (tensor.get("name", ""), key, said[key]))


def dtype_of(code):
    """PyTorch's name of an element type."""
    if code not in DTYPES:
        what = "strings" if code == _STRING else "elements of type %s" % code
        raise Refused("it works on %s" % what, "onnx-op")
    return DTYPES[code][0]


def shape_of(tensor):
    """Extents of a stored tensor, checked."""
    shape = tuple(tensor["dims"])
    check_shape(shape, tensor.get("name", ""))
    return shape


def check_shape(shape, name):
    """Refuse sizes that are negative or that no machine could hold."""
    elements = 1
    for extent in shape:
        if extent < 0:
            raise Malformed("the size of `%s` is negative: %s" % (name, list(shape)))
        elements *= extent
    if elements > MOST_ELEMENTS or len(shape) > 32:
        raise Malformed("the size of `%s` is beyond all machines: %s" % (name, list(shape)))


def values_of(tensor):
    """The numbers of a small stored tensor as a flat list; None where they are not in the file."""
    shape, dtype = shape_of(tensor), dtype_of(tensor.get("dtype", 0))
    count = 1
    for extent in shape:
        count *= extent
    if count > MOST_VALUES or tensor.get("location") == _EXTERNAL:
        return None
    raw = tensor.get("raw")
    if isinstance(raw, Range) and len(raw):
        letter = _FORMATS.get(dtype)
        if letter is None:
            return None
        if len(raw) != struct.calcsize("<%d%s" % (count, letter)):
            raise Malformed("`%s` has %d bytes for %d numbers" % (tensor.get("name", ""), len(raw),
                                                                  count))  # fmt: skip
        return list(struct.unpack("<%d%s" % (count, letter), raw.read()))
    listed = next((tensor[key] for key in ("floats", "int64s", "int32s", "doubles", "uint64s")
                   if tensor[key]), [])  # fmt: skip
    if dtype in ("float16", "bfloat16") and listed:
        return None
    if len(listed) != count:
        message = "`%s` has %d numbers where its shape says %d"
        raise Malformed(message % (tensor.get("name", ""), len(listed), count))
    return listed
