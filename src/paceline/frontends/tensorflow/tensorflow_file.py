"""Read the graph of a SavedModel in the form in which ONNX graphs are run.

Standard library only. Variables are never read: their files are not opened. Field numbers are those
of graph.proto, function.proto, meta_graph.proto (https://github.com/tensorflow/tensorflow).
"""

import os

from onnx_file import Refused
from protobuf_wire import Malformed, Reader, many, once

#: ONNX's code of an element type of TensorFlow.
_CODES = {1: 1, 2: 11, 3: 6, 4: 2, 5: 5, 6: 3, 8: 14, 9: 7, 10: 9, 14: 16, 17: 4, 19: 10, 22: 12,
          23: 13}  # fmt: skip
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_OTHER_OUTPUTS = {("TopKV2", "indices"): 1, ("FusedBatchNormV3", "batch_mean"): 1,
                  ("FusedBatchNormV3", "batch_variance"): 2}  # fmt: skip
DOMAIN, FUNCTIONS = "tf", "tf.function"
_EXTERNAL = 1


def _dim():
    return {1: once("value", "int")}


def _shape():
    return {2: many("dim", _dim), 3: once("unknown", "int")}


def _tensor():
    return {
        1: once("dtype", "int"), 2: once("shape", _shape), 4: once("raw", "range"),
        5: many("floats", "float"), 6: many("doubles", "double"), 7: many("int32s", "int"),
        10: many("int64s", "int"), 11: many("bools", "int"), 13: many("halves", "int"),
    }  # fmt: skip


def _function_name():
    return {1: once("name", "text")}


def _list():
    return {2: many("strings", "text"), 3: many("ints", "int"), 4: many("floats", "float")}


def _value():
    return {
        1: once("list", _list), 2: once("s", "text"), 3: once("i", "int"), 4: once("f", "float"),
        5: once("b", "int"), 6: once("type", "int"), 7: once("shape", _shape),
        8: once("tensor", _tensor), 10: once("function", _function_name),
    }  # fmt: skip


def _attribute():
    return {1: once("key", "text"), 2: once("value", _value)}


def _node():
    return {
        1: once("name", "text"), 2: once("op", "text"), 3: many("inputs", "text"),
        5: many("attributes", _attribute),
    }  # fmt: skip


def _argument():
    return {1: once("name", "text")}


def _signature():
    return {
        1: once("name", "text"), 2: many("inputs", _argument), 3: many("outputs", _argument),
    }  # fmt: skip


def _returned():
    return {1: once("key", "text"), 2: once("value", "text")}


def _function():
    return {
        1: once("signature", _signature), 3: many("nodes", _node), 4: many("returned", _returned),
    }  # fmt: skip


def _library():
    return {1: many("functions", _function)}


def _graph():
    return {1: many("nodes", _node), 2: once("library", _library)}


def _tensor_info():
    return {1: once("name", "text"), 2: once("dtype", "int"), 3: once("shape", _shape)}


def _named_tensor():
    return {1: once("key", "text"), 2: once("value", _tensor_info)}


def _entry_point():
    return {1: many("inputs", _named_tensor), 2: many("outputs", _named_tensor)}


def _named_entry_point():
    return {1: once("key", "text"), 2: once("value", _entry_point)}


def _meta_graph():
    return {2: once("graph", _graph), 5: many("entry_points", _named_entry_point)}


def _saved_model():
    return {2: many("graphs", _meta_graph)}


def read_saved_model(path):
    """(graph, functions) of a SavedModel's folder, or of its ``saved_model.pb``."""
    file = os.path.join(path, "saved_model.pb") if os.path.isdir(path) else path
    try:
        saved = Reader(file).message(_saved_model())
    except OSError as error:
        raise Refused("`%s` cannot be read: %s" % (file, error.strerror), "no-file") from None
    meta = next((one for one in saved["graphs"] if "graph" in one), None)
    if meta is None:
        raise Malformed("it holds no graph")
    points = {one.get("key", ""): one.get("value") for one in meta["entry_points"]}
    point = points.get("serving_default") or points.get("serve")
    if not point or not point["inputs"] or not point["outputs"]:
        raise Refused("it has no signature `serving_default` to run", "tf-signature")
    if not all("value" in one for one in (*point["inputs"], *point["outputs"])):
        raise Malformed("its signature does not say which tensors it means")
    library = meta["graph"].get("library", {"functions": []})
    functions = dict(_translated(one) for one in library["functions"])
    return _main_graph(meta["graph"]["nodes"], point), functions


def _main_graph(nodes, point):
    """What the signature's outputs need."""
    outputs = [_reference(one["value"].get("name", ""), {}) for one in point["outputs"]]
    inputs = [_input(one["value"]) for one in point["inputs"]]
    given = {one["name"] for one in inputs}
    ordered = _ordered(nodes, outputs, given)
    variables = [one for one in ordered if one.get("op") == "VarHandleOp"]
    return {
        "nodes": [_node_of(one, {}) for one in ordered if one.get("op") != "VarHandleOp"],
        "initializers": [_variable(one) for one in variables],
        "inputs": inputs, "outputs": [{"name": name} for name in outputs],
    }  # fmt: skip


def _translated(function):
    """(key, function) in the form of one of an ONNX file."""
    signature = function.get("signature", {"inputs": [], "outputs": []})
    returned = {one.get("key"): one.get("value", "") for one in function["returned"]}
    ops = {one.get("name"): one.get("op") for one in function["nodes"]}
    wanted = [returned.get(one.get("name"), "") for one in signature["outputs"]]
    outputs = [_reference(one, ops) for one in wanted]
    arguments = [one.get("name", "") for one in signature["inputs"]]
    nodes = _ordered(function["nodes"], outputs, set(arguments), ops)
    return (FUNCTIONS, signature.get("name", "")), {
        "inputs": [_reference(one, ops) for one in arguments], "outputs": outputs,
        "nodes": [_node_of(one, ops) for one in nodes], "defaults": [], "opsets": [],
    }  # fmt: skip


def _ordered(nodes, outputs, given, ops=None):
    """The nodes that are needed, each after what it reads."""
    by_name = {one.get("name", ""): one for one in nodes}
    for name in given:
        by_name.pop(name.partition(":")[0], None)
    done, open_, ordered = set(), set(), []
    stack = [name.rpartition(":")[0] for name in outputs]
    while stack:
        name = stack[-1]
        node = by_name.get(name)
        if name in done or node is None:
            stack.pop()
            continue
        before = [_reference(one, ops or {}).rpartition(":")[0] for one in _data(node)]
        left = [one for one in before if one in by_name and one not in done]
        if not left:
            done.add(name)
            open_.discard(name)
            ordered.append(node)
            stack.pop()
        elif name in open_:
            raise Malformed("`%s` is used before it is made: a cycle" % name)
        else:
            open_.add(name)
            stack += left
    return ordered


def _data(node):
    return [one for one in node["inputs"] if not one.startswith("^")]


def _reference(text, ops):
    """``node:number`` of what is written as ``node``, ``node:1`` or ``node:output:1``."""
    parts = text.split(":")
    number = parts[-1] if len(parts) > 1 and parts[-1].isdecimal() else "0"
    if len(parts) == 3:
        number = str(_OTHER_OUTPUTS.get((ops.get(parts[0]), parts[1]), int(number)))
    return "%s:%s" % (parts[0], number)


def _node_of(node, ops):
    name, op = node.get("name", ""), node.get("op", "")
    attributes = [_attribute_of(one) for one in node["attributes"]]
    domain = DOMAIN
    if op in _CALLS:
        called = next((one["value"]["function"] for one in node["attributes"]
                       if "function" in one.get("value", {})), {})  # fmt: skip
        domain, op, attributes = FUNCTIONS, called.get("name", ""), []
    return {
        "name": name, "op": op, "domain": domain, "attributes": attributes, "notes": [],
        "inputs": [_reference(one, ops) for one in _data(node)],
        "outputs": ["%s:%d" % (name, n) for n in range(64 if domain == FUNCTIONS else 8)],
    }  # fmt: skip


def _attribute_of(entry):
    value, made = entry.get("value", {}), {"name": entry.get("key", "")}
    for key, name in (("i", "i"), ("b", "i"), ("type", "i"), ("f", "f"), ("s", "s")):
        if key in value:
            made[name] = value[key]
    if "tensor" in value:
        made["t"] = _stored(value["tensor"])
    if "shape" in value:
        made["ints"] = [one.get("value", 0) for one in value["shape"]["dim"]]
    for key in ("ints", "floats", "strings"):
        listed = value.get("list", {}).get(key, [])
        made[key] = made.get(key) or listed
    return made


def _stored(tensor):
    """A constant in the form of ONNX: one number may stand for all."""
    dims = [one.get("value", 0) for one in tensor.get("shape", {"dim": []})["dim"]]
    code = _CODES.get(tensor.get("dtype", 0), 8)
    made = {"dims": dims, "dtype": code, "external": [], "name": "a constant"}
    lists = {"floats": [], "doubles": [], "int32s": [], "int64s": [], "uint64s": []}
    if "raw" in tensor:
        made["raw"] = tensor["raw"]
        return {**lists, **made}
    values = next((tensor[key] for key in ("floats", "doubles", "int32s", "int64s", "bools",
                                           "halves") if tensor[key]), [0])  # fmt: skip
    count = 1
    for extent in dims:
        count *= max(extent, 0)
    if len(values) < count <= 1 << 16:
        values = values + [values[-1]] * (count - len(values))
    if tensor["halves"] or count > 1 << 16:
        made["location"] = _EXTERNAL
    return {**lists, **made, "floats": values[:count]}


def _variable(node):
    """A weight: its shape stands in the graph."""
    values = {one.get("key"): one.get("value", {}) for one in node["attributes"]}
    dims = [one.get("value", 0) for one in values.get("shape", {}).get("shape", {"dim": []})["dim"]]
    return {
        "name": node.get("name", "") + ":0", "dims": dims, "location": _EXTERNAL, "external": [],
        "dtype": _CODES.get(values.get("dtype", {}).get("type", 0), 8),
    }  # fmt: skip


def _input(info):
    """A signature's input in the form of ONNX: free where it says -1."""
    dims = []
    for place, one in enumerate(info.get("shape", {"dim": []})["dim"]):
        value = one.get("value", 0)
        name = "batch" if place == 0 else "%s_%d" % (info.get("name", "").partition(":")[0], place)
        dims.append({"name": name} if value == -1 else {"value": value})
    kind = {"dtype": _CODES.get(info.get("dtype", 0), 8), "shape": {"dim": dims}}
    return {"name": info.get("name", ""), "type": {"tensor": kind}}
