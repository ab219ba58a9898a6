"""ONNX files: counts of exported models, what is refused, and what damaged files do."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_front_ends import DATA
from traced import reader, trace_here

from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.graph import OpKind, Phase, monomials

GRAPHS = DATA / "onnx"
#: An exported graph without its weights, the model that it came from, and the length to compare at.
EXPORTED = {
    "resnet18": ("torchvision:resnet18", 1),
    "mobilenet_v3_small": ("torchvision:mobilenet_v3_small", 1),
    "distilbert": ("hf:DistilBertModel", 128),
}


@pytest.fixture
def read(monkeypatch):
    """Trace a file in this process."""
    return reader(monkeypatch, "onnx", ("torch", "onnx"), seq=128)


def flop(workload, batch=1, seq=1, phase=None):
    graph = workload.passes[0].graph
    rows = slice(None) if phase is None else graph.ops.phase == phase
    return (graph.ops.flop[rows] @ monomials(batch, seq)[0]).sum()


def kinds(workload):
    return [OpKind(one) for one in workload.passes[0].graph.ops.kind]


def saved(path, nodes, inputs, outputs, stored=(), opset=17, **more):
    """A file of a few nodes."""

    def values(given):
        return [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in given]

    graph = helper.make_graph(nodes, "made", values(inputs), values(outputs), list(stored))
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, **more), path)
    return path


def numbers(name, values, dtype=np.float32):
    return onnx.numpy_helper.from_array(np.array(values, dtype=dtype), name)


X = ("x", TensorProto.FLOAT, ["batch", 8])
Y = ("y", TensorProto.FLOAT, None)


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_model_multiplies_what_its_pytorch_model_does(name, read):
    entry, seq = EXPORTED[name]
    found = read(GRAPHS / f"{name}.onnx")
    meant = trace_here(entry, "infer", image_size=224 if seq == 1 else None, seq=seq)
    for batch in (1, 8):
        assert flop(found, batch, seq) == pytest.approx(flop(meant, batch, seq), rel=0.005)


def test_weights_are_not_opened(read):
    # The three graphs name a file of weights that is not there.
    assert not list(GRAPHS.glob("*.data"))
    # Batch norms are folded, and the zero biases of a new model left out.
    assert read(GRAPHS / "resnet18.onnx").num_parameters == 11_689_512 - 2 * 4800


def test_a_training_step_states_what_it_assumes(read):
    found = read(GRAPHS / "resnet18.onnx", "train")
    assert "training step of the inference graph" in found.title
    forward, backward = (flop(found, phase=phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    # The first convolution's input needs no gradient.
    assert backward == pytest.approx(2 * forward - 2 * 112 * 112 * 64 * 147)
    assert OpKind.OPTIMIZER in kinds(found)
    assert "layer1.0.conv2" in " ".join(found.passes[0].graph.modules)


def test_a_batch_that_the_file_fixes_is_free(tmp_path, read):
    nodes = [helper.make_node("Reshape", ["x", "to"], ["flat"]),
             helper.make_node("MatMul", ["flat", "w"], ["y"])]  # fmt: skip
    path = saved(tmp_path / "fixed.onnx", nodes, [("x", TensorProto.FLOAT, [1, 4, 2])], [Y],
                 [numbers("to", [1, 8], np.int64), numbers("w", np.zeros((8, 5)))])  # fmt: skip
    found = read(path)
    assert flop(found, 7) == 7 * 2 * 8 * 5
    assert "batch of 1 is taken as free" in found.title


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_is_one_op(op, gates, tmp_path, read):
    weights = [numbers("w", np.zeros((2, gates * 16, 12))),
               numbers("r", np.zeros((2, gates * 16, 16))),
               numbers("b", np.zeros((2, 2 * gates * 16)))]  # fmt: skip
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=16,
                            direction="bidirectional")  # fmt: skip
    path = saved(tmp_path / "r.onnx", [node], [("x", TensorProto.FLOAT, [9, "batch", 12])], [Y],
                 weights)  # fmt: skip
    found = read(path, "train")
    assert flop(found, 5, phase=Phase.FORWARD) == 5 * 9 * 2 * 2 * gates * 16 * (12 + 16)
    assert kinds(found).count(OpKind.RECURRENT) == 1
    assert kinds(found).count(OpKind.RECURRENT_BACKWARD) == 1
    assert found.num_parameters == 2 * gates * 16 * (12 + 16 + 2)


def looped(tmp_path, count):
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["again"]),
         helper.make_node("Identity", ["go"], ["went"])],
        "body",
        [helper.make_tensor_value_info("step", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("went", TensorProto.BOOL, []),
         helper.make_tensor_value_info("again", TensorProto.FLOAT, None)],
    )  # fmt: skip
    node = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    return saved(tmp_path / "loop.onnx", [node], [X], [Y],
                 [numbers("count", count, np.int64), numbers("w", np.zeros((8, 8)))])  # fmt: skip


def test_a_loop_runs_as_often_as_its_count_says(tmp_path, read):
    assert flop(read(looped(tmp_path, 6)), 3) == 6 * 2 * 3 * 8 * 8


def test_a_function_of_the_file_is_run(tmp_path, read):
    function = helper.make_function(
        "own", "Twice", ["a"], ["c"],
        [helper.make_node("MatMul", ["a", "a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    path = saved(tmp_path / "f.onnx", [node], [("x", TensorProto.FLOAT, ["batch", 8, 8])], [Y],
                 opsets=[helper.make_opsetid("own", 1)], functions=[function])  # fmt: skip
    assert flop(read(path), 2) == 2 * 2 * 8**3


def outside(tensor):
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value="../../etc/passwd")
    return tensor


def sized(tensor, *extents):
    del tensor.dims[:]
    tensor.dims.extend(extents)
    return tensor


W = numbers("w", np.zeros((8, 8)))
MATMUL = helper.make_node("MatMul", ["x", "w"], ["y"])
CASES = {
    "outside its folder": ([MATMUL], outside(numbers("w", np.zeros((8, 8)))), {}),
    "size of `w` is negative": ([MATMUL], sized(numbers("w", np.zeros((8, 8))), -8, 8), {}),
    "beyond all machines": ([MATMUL], sized(numbers("w", np.zeros((8, 8))), 1 << 40, 1 << 40), {}),
    "`own::Secret` is not known": ([helper.make_node("Secret", ["x"], ["y"], domain="own")], W,
                                   {"opsets": [helper.make_opsetid("own", 1)]}),
    "a cycle or a gap": ([helper.make_node("Add", ["y", "x"], ["z"]),
                          helper.make_node("Relu", ["z"], ["y"])], W, {}),
    "opset 9": ([MATMUL], W, {"opset": 9}),
    "as many results as its data says": ([helper.make_node("NonZero", ["x"], ["y"])], W, {}),
}  # fmt: skip


@pytest.mark.parametrize("said", CASES)
def test_what_cannot_be_read_is_refused_in_one_sentence(said, tmp_path, read):
    nodes, weight, more = CASES[said]
    path = saved(tmp_path / "bad.onnx", nodes, [X], [Y], [weight], **more)
    with pytest.raises(InvalidInputError, match=said) as error:
        read(path)
    assert error.value.hint


def test_an_endless_loop_is_refused(tmp_path, read):
    with pytest.raises(InvalidInputError, match="more than 4000 times"):
        read(looped(tmp_path, 1 << 40))


def test_a_function_that_calls_itself_is_refused(tmp_path, read):
    function = helper.make_function(
        "own", "Again", ["a"], ["b"], [helper.make_node("Again", ["a"], ["b"], domain="own")],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    node = helper.make_node("Again", ["x"], ["y"], domain="own")
    path = saved(tmp_path / "f.onnx", [node], [X], [Y], functions=[function],
                 opsets=[helper.make_opsetid("own", 1)])  # fmt: skip
    with pytest.raises(InvalidInputError, match="call each other"):
        read(path)


def damaged(data, rng):
    """A file with some bytes changed, cut off, repeated or left out."""
    data, way = bytearray(data), rng.randrange(4)
    if way == 0:
        return bytes(data[: rng.randrange(len(data))])
    at = rng.randrange(len(data))
    if way == 1:
        del data[at : at + rng.randrange(1, 64)]
    elif way == 2:
        data[at:at] = data[max(0, at - 200) : at]
    else:
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def outcome(read, path):
    """The kind of error of a file, and whether it says what to do; None where it is read."""
    try:
        read(path)
    except PacelineError as error:
        return type(error), bool(error.hint)
    return None


def fuzzed(read, path, count, seed):
    """What became of damaged files."""
    rng, plain, outcomes = random.Random(seed), (GRAPHS / "resnet18.onnx").read_bytes(), set()
    for _ in range(count):
        path.write_bytes(damaged(plain, rng))
        outcomes.add(outcome(read, path))
    return outcomes


def test_a_damaged_file_gives_one_message(tmp_path, read):
    assert fuzzed(read, tmp_path / "damaged.onnx", 25, seed=1) == {None, (InvalidInputError, True)}


@pytest.mark.slow
def test_many_damaged_files_give_one_message_each(tmp_path, read):
    found = fuzzed(read, tmp_path / "damaged.onnx", 2000, seed=2)
    assert found == {None, (InvalidInputError, True)}
