"""``.keras`` files are read without running what they hold, and bad ones end in one sentence."""

import random
import zipfile

import pytest
from keras_here import cases, keras_file, module, subject_of
from mutated import answers, damaged, damaged_bytes, peak_bytes

from paceline.app.main import main
from paceline.errors import PacelineError
from paceline.model.reading.load import load_workload


def layer(kind, module="keras.layers", **config):
    return {"module": module, "class_name": kind, "config": {"name": kind.lower(), **config}}


def model(*layers, shape=(None, 8)):
    first = layer("InputLayer", batch_shape=list(shape), dtype="float32")
    return {"class_name": "Sequential", "config": {"name": "s", "layers": [first, *layers]}}


def functional(*layers, outputs="last"):
    listed = [layer("InputLayer", batch_shape=[None, 8], name="in"), *layers]
    config = {"name": "f", "layers": listed, "input_layers": ["in", 0, 0],
              "output_layers": [outputs, 0, 0]}  # fmt: skip
    return {"class_name": "Functional", "config": config}


def reads(name, *sources):
    tensors = [{"class_name": "__keras_tensor__",
                "config": {"keras_history": [source, 0, 0]}} for source in sources]  # fmt: skip
    serialized = layer("Add", name=name)
    return {**serialized, "name": name, "inbound_nodes": [{"args": [tensors], "kwargs": {}}]}


def nested(depth):
    made = layer("Dense", units=3)
    for number in range(depth):
        made = {"class_name": "Sequential", "config": {"name": f"s{number}", "layers": [made]}}
    return model(made)


BAD = {
    "Lambda": (
        model(layer("Lambda", function={"class_name": "__lambda__", "config": {}})),
        "Lambda",
    ),
    "own class": (model(layer("Secret", module="my.code")), "class of its own"),
    "own activation": (
        model(
            layer(
                "Dense",
                units=2,
                activation={"class_name": "function", "module": "os", "config": "system"},
            )
        ),
        "code of its own",
    ),
    "negative": (model(layer("Dense", units=-3)), "`units` of -3"),
    "no size": (model(layer("Dense")), "`units` of None"),
    "huge": (
        model(layer("Dense", units=2**39), layer("Dense", units=2**39, name="d2")),
        "elements",
    ),
    "unknown layer": (model(layer("ConvLSTM2D")), "not read yet"),
    "no layers": ({"class_name": "Sequential", "config": {"layers": []}}, "no layers"),
    "cycle": (functional(reads("a", "in", "last"), reads("last", "a", "in")), "no layer that"),
    "itself": (functional(reads("last", "last", "in")), "no layer that"),
    "missing": (functional(reads("last", "in", "nowhere")), "no layer that"),
    "twice": (
        functional(reads("last", "in", "in"), reads("last", "in", "in")),
        "two of its layers",
    ),
    "deep": (nested(30), "nested more than"),
    "optimizer": (
        {**model(layer("Dense", units=2)), "compile_config": {"optimizer": "magic"}},
        "the optimizer `magic`",
    ),
    "no shape": (model(layer("Dense", units=2), shape=(None, -4)), "the shape"),
    "class": ({"class_name": "Mine", "config": {}}, "no model of layers"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_read_is_refused_in_one_sentence(name):
    settings, said = BAD[name]
    with pytest.raises(module("torch_entries.request_errors").RequestError, match=said):
        subject_of(settings)


def test_a_file_is_no_zip_or_a_bomb_or_holds_no_model(tmp_path):
    path, read = tmp_path / "m.keras", module("keras_file").read_settings
    refused = module("torch_entries.request_errors").RequestError
    for content, said in ((b"", "zip"), (b"PK\x03\x04 no", "zip"), (None, "cannot be read")):
        path = tmp_path / "none.keras" if content is None else path
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(refused, match=said):
            read(str(path))
    before = peak_bytes()
    for text, said in (
        (b" " * 200_000_000, "more than 64 MB"),
        (b"[" * 100_000, "nested"), (b"[1]", "no model"), (b"\xff{", "no JSON"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested"),
    ):  # fmt: skip
        with zipfile.ZipFile(path := tmp_path / "m.keras", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("config.json", text)
        with pytest.raises(refused, match=said):
            read(str(path))
    assert peak_bytes() - before < 500_000_000


def test_a_damaged_directory_is_not_told_byte_by_byte(tmp_path):
    refused = module("torch_entries.request_errors").RequestError
    path = keras_file(tmp_path / "m.keras", model(layer("Dense", units=3)))
    whole, first = path.read_bytes(), path.read_bytes().index(b"config.json")
    lengths = (60_000).to_bytes(2, "little")  # of the name, in the header before it
    damaged_text = whole[: first - 4] + lengths + whole[first - 2 : first] + b"?" * 60_000
    path.write_bytes(damaged_text + whole[first:])
    with pytest.raises(refused, match="no whole zip file") as said:
        module("keras_file").read_settings(str(path))
    assert len(str(said.value)) < 500


def test_the_command_answers_for_a_file_and_for_a_bad_one(tmp_path, capsys):
    path = keras_file(tmp_path / "mnist.keras", cases()["mnist"]["settings"])
    assert main(["predict", str(path), "--device", "t4", "--batch", "32"]) == 0
    assert "34.8 k parameters" in capsys.readouterr().out
    path = keras_file(tmp_path / "bad.keras", BAD["Lambda"][0])
    assert main(["predict", str(path), "--device", "t4"]) == 2
    said = capsys.readouterr().err
    assert "is a Lambda: code in a file is not run" in said
    assert "Traceback" not in said


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(PacelineError, match="cannot be read"):
        load_workload(str(tmp_path / "none.keras"))


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_damaged_files_end_in_one_sentence_or_a_model(count, tmp_path):
    chance, path, num_models = random.Random(31), tmp_path / "m.keras", 0
    names = [name for name in cases() if name != "vgg16-head"]
    before = peak_bytes()
    for number in range(count):
        settings = cases()[chance.choice(names)]["settings"]
        if number % 4:
            made = damaged(settings, chance)
            num_models += answers(lambda made=made: subject_of(made))
            continue
        keras_file(path, settings)
        path.write_bytes(damaged_bytes(path.read_bytes(), chance))
        read = module("keras_file").read_settings
        num_models += answers(lambda read=read: read(str(path)))
    assert 0 < num_models < count
    assert peak_bytes() - before < 1_000_000_000
