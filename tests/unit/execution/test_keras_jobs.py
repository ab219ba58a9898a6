"""Which engine runs a model of another framework, and Keras models in their own framework."""

import os
import subprocess

import pytest

from paceline.app.main import main
from paceline.app.truth.measured_models import check_engine, failure_hint, measured_entry
from paceline.app.truth.measuring import _modes
from paceline.errors import InvalidInputError
from paceline.execution.ceilings import SOURCE as CEILINGS
from paceline.execution.ceilings import summarize_ceilings
from paceline.execution.machine_model import start_model
from paceline.execution.stacks import stack_specs
from paceline.measurements.store import Store
from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.reading.load import load_workload

#: Keras 3 as beginners write it, compiled or not, frozen or not, with a length of its own or not.
BEGINNERS = """
import keras
from keras import layers


def cnn():
    model = keras.Sequential([
        layers.Conv2D(8, 3, activation="relu", input_shape=(28, 28, 1)), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _recurrent(layer):
    model = keras.Sequential([layer(16, input_shape=(None, 10)), layers.Dense(1)])
    model.compile("rmsprop", "mse")
    return model


def simple_rnn():
    return _recurrent(layers.SimpleRNN)


def lstm():
    return _recurrent(layers.LSTM)


def gru():
    return _recurrent(layers.GRU)


def vgg_head():
    base = keras.applications.VGG16(weights=None, include_top=False, input_shape=(64, 64, 3))
    base.trainable = False
    model = keras.Sequential([base, layers.Flatten(), layers.Dense(5, activation="softmax")])
    model.compile("adam", "categorical_crossentropy")
    return model


def two_outputs():
    x = keras.Input((4,))
    return keras.Model(x, [layers.Dense(1)(x), layers.Dense(1)(x)])


def nothing():
    return 3
"""


def specs(*names):
    return [stack_specs()[name] for name in names]


def test_a_model_of_another_framework_names_the_stacks_that_run_it(tmp_path):
    (tmp_path / "model.onnx").touch()
    check_engine("resnet50", specs("torch", "jax"))
    check_engine("keras:ResNet50", specs("jax", "tensorflow", "keras-torch"))
    check_engine(str(tmp_path / "model.onnx"), specs("onnxruntime", "openvino"))
    with pytest.raises(InvalidInputError, match="there is no file"):
        check_engine("made/model.onnx", specs("onnxruntime"))
    with pytest.raises(InvalidInputError, match="does not run on the stack `torch`") as refused:
        check_engine("keras:ResNet50", specs("jax", "torch"))
    assert "--stack tensorflow or" in refused.value.hint
    with pytest.raises(InvalidInputError, match="does not run on the stack `jax`"):
        check_engine("model.onnx", specs("jax"))


def test_a_mode_that_is_not_named_is_what_the_stacks_can_do():
    assert _modes(("usual",), ("torch", "onnxruntime")) == ("step",)
    assert _modes(("usual",), ("onnxruntime",)) == ("forward",)
    assert _modes(("usual", "forward"), None) == ("step", "forward")


def test_a_file_that_its_framework_refuses_is_no_misspelt_name():
    assert "file" in failure_hint("resnet18.onnx")
    assert "resnet18" in failure_hint("resnet1")


def test_what_no_engine_runs_is_still_refused():
    assert measured_entry("keras:ResNet50") == "keras:ResNet50"
    for typed in ("net.prototxt", "model.gguf", "jax:train:build"):
        with pytest.raises(InvalidInputError, match="predicted, not measured"):
            measured_entry(typed)


@pytest.fixture
def beginners(tmp_path, monkeypatch):
    (tmp_path / "beginners.py").write_text(BEGINNERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_STORE", str(tmp_path / "store"))
    return tmp_path


#: A Python with Keras on each backend; the one that is not named is skipped.
PYTHONS = {name: os.environ.get(f"PACELINE_KERAS_{name.upper()}") for name in
           ("jax", "tensorflow", "torch")}  # fmt: skip


def python_of(backend):
    if not PYTHONS[backend]:
        pytest.skip(f"PACELINE_KERAS_{backend.upper()} names no Python with Keras on {backend}")
    return PYTHONS[backend]


def measured(backend, names, *more):
    stack = "keras-torch" if backend == "torch" else backend
    return main(["measure", *names, "--stack", stack, "--python", python_of(backend), "--batch",
                 "2", "--seconds", "0.05", "--threads", "1", "--seq", "12", *more])  # fmt: skip


@pytest.mark.stacks
@pytest.mark.parametrize("backend", PYTHONS)
def test_five_models_of_beginners_are_measured_as_they_are(backend, beginners, capsys):
    names = ("cnn", "simple_rnn", "lstm", "gru", "vgg_head")
    assert measured(backend, [f"beginners:{name}" for name in names]) == 0
    said = capsys.readouterr().out
    assert all(f"beginners:{name} · training step" in said for name in names)
    assert "failed" not in said
    records = Store(beginners / "store").read().records
    ceilings = [record for record in records if record.source == CEILINGS]
    framework = "keras-torch" if backend == "torch" else backend
    assert start_model(summarize_ceilings(ceilings), framework) is not None


def counts(backend, name, monkeypatch):
    """(parameters, forward FLOP, FLOP of a step, recurrent ops each way)."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    found = load_workload(f"beginners:{name}", python=python_of(backend))
    ops = found.passes[0].graph.ops
    flop = ops.flop @ monomials(2, 64)[0]
    kinds = [OpKind(one) for one in ops.kind]
    recurrent = [kinds.count(one) for one in (OpKind.RECURRENT, OpKind.RECURRENT_BACKWARD)]
    return found.num_parameters, flop[ops.phase == Phase.FORWARD].sum(), flop.sum(), recurrent


@pytest.mark.stacks
@pytest.mark.parametrize("backend", PYTHONS)
@pytest.mark.parametrize(
    ("name", "parameters", "forward", "is_recurrent"),
    [
        ("cnn", 80 + 13 * 13 * 8 * 10 + 10, 2 * 2 * (26 * 26 * 8 * 9 + 13 * 13 * 8 * 10), False),
        ("simple_rnn", 16 * 27 + 17, 2 * 2 * 64 * 16 * 26 + 2 * 2 * 16, True),
        ("lstm", 4 * 16 * 27 + 17, 4 * 2 * 2 * 64 * 16 * 26 + 2 * 2 * 16, True),
        ("gru", 3 * 16 * 28 + 17, 3 * 2 * 2 * 64 * 16 * 26 + 2 * 2 * 16, True),
    ],
)
def test_one_source_counts_the_same_on_every_backend(
    backend, name, parameters, forward, is_recurrent, beginners, monkeypatch
):
    found = counts(backend, name, monkeypatch)
    assert found[:2] == (parameters, forward)
    assert 2.9 < found[2] / found[1] <= 3 if is_recurrent else 2 < found[2] / found[1] < 3
    assert found[3] == [is_recurrent, is_recurrent]


@pytest.mark.stacks
@pytest.mark.parametrize("backend", PYTHONS)
def test_applications_and_files_are_measured(backend, beginners, capsys):
    made = "keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])"
    subprocess.run(
        [python_of(backend), "-c", f"import keras; {made}.save('m.keras')"],
        env={**os.environ, "KERAS_BACKEND": backend}, check=True,
    )  # fmt: skip
    assert measured(backend, ["keras:MobileNetV2", "m.keras"], "--mode", "forward") == 0
    assert "keras:MobileNetV2 · inference" in capsys.readouterr().out


@pytest.mark.stacks
@pytest.mark.parametrize(
    ("name", "said"),
    [("two_outputs", "2 outputs"), ("nothing", "returned int"), ("no", "no function")],
)
def test_what_cannot_be_measured_is_one_sentence(name, said, beginners, capsys):
    assert measured("jax", [f"beginners:{name}"]) in (0, 2)
    told = capsys.readouterr()
    assert said in told.out + told.err
    assert "Traceback" not in told.out + told.err
