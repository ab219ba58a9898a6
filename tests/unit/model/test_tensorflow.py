"""SavedModels: counts by hand, what is refused, and what damaged files do."""

import random
import shutil
import sys

import pytest
from test_front_ends import DATA
from test_onnx import damaged, flop, kinds, outcome

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind
from paceline.model.names.front_ends import FRONT_ENDS
from paceline.model.reading.load import workload_from_report
from paceline.model.reading.worker import reported_error

#: A convolution, a pool and a dense layer, as `tf.saved_model.save` wrote them; no variables.
SMALL = DATA / "tensorflow" / "small"


@pytest.fixture
def read(monkeypatch):
    """Trace a folder in this process."""
    for folder in ("torch", "onnx", "rebuilt", "tensorflow"):
        monkeypatch.syspath_prepend(str(FRONT_ENDS / folder))
    import torch_worker
    from tensorflow_subject import build_subject

    def traced(path, task="infer"):
        try:
            request = {"entry": str(path), "task": task}
            report = torch_worker.serve(request, lambda _: None, build_subject)
        except Exception as error:
            event = torch_worker.error_event(error)
            raise reported_error(event, str(path), sys.executable) from error
        return workload_from_report(report, entry=str(path), task=task, optimizer="adamw")

    return traced


def test_a_saved_model_is_counted_without_its_variables(read):
    found = read(SMALL)
    assert found.num_parameters == 9 * 32 + 32 + 13 * 13 * 32 * 10
    assert flop(found, 5) == 5 * 2 * (26 * 26 * 32 * 9 + 13 * 13 * 32 * 10)


def test_its_training_step_is_derived(read):
    found = read(SMALL, "train")
    assert {OpKind.CONV_BACKWARD_WEIGHT, OpKind.OPTIMIZER} <= set(kinds(found))
    assert "training step of the inference graph" in found.title


@pytest.fixture
def changed(tmp_path):
    """A copy of the model whose bytes a function changes."""

    def change(function):
        folder = tmp_path / "changed"
        shutil.copytree(SMALL, folder, dirs_exist_ok=True)
        file = folder / "saved_model.pb"
        file.write_bytes(function((SMALL / "saved_model.pb").read_bytes()))
        return folder

    return change


@pytest.mark.parametrize(("old", "new", "said"), [
    (b"MaxPool", b"MadPool", "`tf::MadPool` is not known"),
    (b"serving_default", b"serving_defaulT", "no signature"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(old, new, said, changed, read):
    with pytest.raises(InvalidInputError, match=said) as error:
        read(changed(lambda data: data.replace(old, new)))
    assert error.value.hint


def test_damaged_files_give_one_message(changed, read):
    rng = random.Random(3)
    found = {outcome(read, changed(lambda data: damaged(data, rng))) for _ in range(30)}
    assert (InvalidInputError, True) in found <= {None, (InvalidInputError, True)}
