"""A save that falls on an epoch's last batch holds what the script does after the batches."""

import subprocess
from pathlib import Path

from warm_workers import WORKERS

_SCRIPT = """import os, sys
import torch
import paceline.loop as loop
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(4, 3))
loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
place, last = sys.argv[1], int(sys.argv[2])
for epoch in loop.epochs(3, folder=place):
    count = 0
    for (batch,) in loop.resume(
        loader, model=model, optimizer=optimizer, every_steps=2, folder=place
    ):
        if epoch == last:
            os._exit(9)
        optimizer.zero_grad()
        (model(batch) + 0.1 * torch.rand(2, 1)).square().mean().backward()
        optimizer.step()
        count += 1
    optimizer.param_groups[0]["lr"] *= 0.5
    print(epoch, count, torch.rand(1).item(), flush=True)
print("end", optimizer.param_groups[0]["lr"], model.weight.tolist(), torch.rand(1).item())
"""


def _run(place: Path, last_epoch: int) -> subprocess.CompletedProcess[str]:
    script = place.with_name("train.py")
    script.write_text(_SCRIPT)
    return WORKERS.run_script(script, place, str(last_epoch))


def test_a_run_goes_on_with_the_epoch_after_the_save(tmp_path: Path) -> None:
    whole = _run(tmp_path / "whole", 9)
    assert whole.returncode == 0, whole.stderr
    killed = _run(tmp_path / "killed", 2)
    assert killed.returncode == 9, killed.stderr
    resumed = _run(tmp_path / "killed", 9)
    assert "goes on after step" in resumed.stderr, resumed.stderr
    lines, wanted = resumed.stdout.splitlines(), whole.stdout.splitlines()
    assert 1 < len(lines) < len(wanted)
    assert lines == wanted[-len(lines) :]
    assert [line.split()[1] for line in lines[:-1]] == ["2"] * (len(lines) - 1)
