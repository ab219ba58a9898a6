"""An option of the workload that would change nothing is refused, with what can be given."""

import pytest

from paceline.app.api.planning import predict
from paceline.errors import InvalidInputError
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row


@pytest.mark.parametrize(
    ("model", "options", "hint"),
    [
        ("gpt2", {"task": "infer", "seq": 256}, "--prompt-tokens 256"),
        ("gpt2", {"task": "infer", "optimizer": "sgd"}, "leave --optimizer out"),
        ("gpt2", {"task": "train", "prompt_tokens": 99}, "leave it out"),
        ("gpt2", {"image_size": 64}, "leave --image-size out"),
        ("resnet50", {"task": "infer", "output_tokens": 99}, "leave it out"),
        ("resnet50", {"seq": 64}, "leave --seq out"),
        ("ncf", {"image_size": 64}, "leave --image-size out"),
    ],
)
def test_an_option_without_effect_is_refused(model, options, hint) -> None:
    with pytest.raises(InvalidInputError) as refused:
        predict(model, device="a100", batch=(8,), **options)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("model", "task"),
    [("Mask R-CNN", "train"), ("MaskRCNN", "infer"), ("unet_3d_medical", "infer")],
)
def test_a_row_states_no_square_for_pictures_that_are_none(model: str, task: str) -> None:
    cells = {"gpu": "A100", "framework": "PyTorch", "precision": "fp32", "batch_per_gpu": "4"}
    row = parse_row({**cells, "model": model, "task": task, "img_size": "224", "unit": "img/s"})
    assert read_job(row).image_size is None
