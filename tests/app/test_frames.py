"""Few frames of the package lie between a command and the prediction of a step."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import paceline
from paceline.app.main import main
from paceline.prediction.step.one_pass import predict_pass

PACKAGE = str(Path(paceline.__file__).parent)
#: A table to be scored.
ROWS = """model,task,framework,precision,gpu,n_gpus,batch_per_gpu
resnet50,train,PyTorch 2.4,fp16,A100-SXM4-40GB,1,64
"""
#: Most frames from `main` to `predict_pass`, both counted.
MOST = {
    "predict gpt2 --device a100 --batch 3": 6,
    "predict gpt2 --device a100 --batch 3 --task infer": 6,
    "plan resnet50 --deadline 24h --device a100 -o plan.yaml": 8,
    "plan llama-3-8b --task infer --device h100 -o plan.yaml": 8,
    "scale gpt2 --device h100 --counts 1,8": 8,
    "scale gpt2 --device h100 --counts 8 --strategy dp2.tp4": 8,
    "score rows.csv --out predicted.csv": 6,
    "score rows.csv --explain 0": 7,
}


def frames_to_the_step(command: str) -> list[str]:
    """Names of the package's functions on the stack where a step is first predicted."""
    found: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is predict_pass.__code__ and not found:
            one: FrameType | None = frame
            while one is not None:
                if one.f_code.co_filename.startswith(PACKAGE):
                    found.append(one.f_code.co_qualname)
                one = one.f_back

    sys.setprofile(watch)
    try:
        main(command.split())
    finally:
        sys.setprofile(None)
    return found[::-1]


@pytest.mark.parametrize("command", MOST)
def test_few_frames_lie_between_a_command_and_its_step(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(ROWS, encoding="utf-8")
    frames = frames_to_the_step(command)
    assert frames[0] == "main"
    assert frames[-1] == "predict_pass"
    assert len(frames) <= MOST[command], frames
