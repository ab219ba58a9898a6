"""`make gpu-run`: the loop beside the same steps by hand on a GPU; the same table dry on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_ROOT = Path(__file__).parents[3]
#: Lets torchvision be imported beside a PyTorch that it was not built for: no boxes are compared.
_STUBS = """
import runpy, sys, torch
try:
    import torchvision
except RuntimeError:
    sys.modules.pop("torchvision", None)
    boxes = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        boxes.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
#: How much longer a step of the loop may take than the same one by hand.
_MORE = 1.05


def table(out: Path, *words: str, **settings: str) -> dict[tuple[str, str], list[str]]:
    """Milliseconds and prediction of each model and way, as the page has them."""
    subprocess.run(
        [sys.executable, "-c", _STUBS, str(_ROOT / "benchmarks/loop_gpu.py"), "--out", str(out),
         *words],
        env={**os.environ, "PYTHONPATH": str(_ROOT / "src"), **settings}, check=True, timeout=3600,
    )  # fmt: skip
    rows = [line.split("|")[1:-1] for line in out.read_text().splitlines() if line[:2] == "| "][1:]
    cells = [[cell.strip() for cell in row] for row in rows]
    return {(model, way): [took, told] for model, _, way, took, told in cells}


@pytest.mark.gpu
def test_the_loop_is_as_fast_as_by_hand_and_as_predicted(tmp_path: Path) -> None:
    found = table(tmp_path / "page.md", "--steps", "200")
    for model in ("resnet50", "gpt2"):
        hand_ms, loop_ms = (float(found[model, way][0]) for way in ("by hand", "paceline.loop"))
        assert loop_ms <= _MORE * hand_ms
        low_ms, high_ms = map(float, found[model, "by hand"][1].split("(")[1][:-1].split(" to "))
        assert low_ms <= hand_ms <= high_ms


@pytest.mark.slow
def test_the_table_is_written_without_a_gpu(tmp_path: Path) -> None:
    """Nothing is compiled: the steps and the page are what is tried."""
    words = ("--steps", "1", "--device", "cpu", "--batch", "1")
    found = table(tmp_path / "page.md", *words, TORCHDYNAMO_DISABLE="1", OMP_NUM_THREADS="1")
    assert {("resnet50", "by hand"), ("resnet50", "paceline.loop")} <= set(found)
    assert {("gpt2", "by hand"), ("gpt2", "paceline.loop")} <= set(found)
    assert all(float(took) > 0 and told for took, told in found.values())
