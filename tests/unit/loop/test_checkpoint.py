"""What a save must survive: torn, damaged, full disks, and being of something else."""

from __future__ import annotations

import builtins
import collections
import contextlib
import errno
import json
import os
import pickle
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from torch import nn  # noqa: E402

from paceline.loop.errors import LoopError  # noqa: E402
from paceline.loop.ranks import Ranks  # noqa: E402
from paceline.loop.saving import commit  # noqa: E402
from paceline.loop.saving.checkpoint import Checkpoints  # noqa: E402
from paceline.loop.saving.pace import best_interval_s, pace_of  # noqa: E402
from paceline.loop.saving.states import put_together, refuse_nameless, taken_apart  # noqa: E402
from paceline.loop.saving.values import decoded, encoded, sealed, unsealed  # noqa: E402


def made(width: int = 4) -> dict:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1:].parameters()}], lr=0.01
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def stepped(objects: dict, times: int = 3) -> dict:
    for _ in range(times):
        objects["optimizer"].zero_grad()
        objects["model"](torch.randn(5, 3)).square().mean().backward()
        objects["optimizer"].step()
        objects["scheduler"].step()
    return objects


def opened(folder: Path, keep: int = 3) -> tuple[Checkpoints, list[str]]:
    said: list[str] = []
    found = Checkpoints(str(folder), Ranks(0, 1), keep=keep, say=said.append)
    OPENED.append(found)
    return found, said


OPENED: list[Checkpoints] = []


@pytest.fixture(autouse=True)
def closed():
    yield
    while OPENED:
        OPENED.pop().close()


def save(checkpoints: Checkpoints, objects: dict, step: int) -> None:
    checkpoints.save(*taken_apart(objects), {"step": step, "rng": None}, waits=True)


def load(checkpoints: Checkpoints, objects: dict) -> int:
    directory, body = checkpoints.newest()
    put_together(objects, body["tree"], lambda wanted: checkpoints.read(directory, wanted))
    return body["step"]


def assert_same(one: dict, other: dict) -> None:
    for name in one:
        first, second = one[name].state_dict(), other[name].state_dict()
        assert encoded_all(first) == encoded_all(second)


def encoded_all(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: encoded_all(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded_all(one) for one in value]
    return value


@pytest.mark.parametrize("has_gradients", [False, True])
def test_everything_comes_back_even_where_gradients_are(tmp_path: Path, has_gradients) -> None:
    """PyTorch's own `get_state_dict` leaves the optimizer out if any gradient is there."""
    checkpoints, _ = opened(tmp_path)
    kept = stepped(made())
    save(checkpoints, kept, 3)
    found = made()
    if has_gradients:
        found["model"](torch.randn(5, 3)).sum().backward()
    assert load(checkpoints, found) == 3
    assert_same(kept, found)
    torch.manual_seed(2)
    stepped(kept)
    torch.manual_seed(2)
    stepped(found)
    assert_same(kept, found)


def test_a_save_is_not_changed_by_the_steps_after_it(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path)
    objects = stepped(made())
    weight = objects["model"][0].weight.detach().clone()
    checkpoints.save(*taken_apart(objects), {"step": 3, "rng": None})
    stepped(objects)
    checkpoints.join()
    found = made()
    load(checkpoints, found)
    assert torch.equal(found["model"][0].weight, weight)


def test_a_directory_without_a_commit_does_not_exist(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, stepped(made()), 3)
    save(checkpoints, stepped(made()), 4)
    newest = commit.committed(tmp_path)[0]
    (tmp_path / newest / commit.COMMIT_FILE).unlink()
    assert load(checkpoints, made()) == 3
    commit.remove_torn(tmp_path)
    assert [p.name for p in tmp_path.glob("step-*")] == commit.committed(tmp_path)


def test_old_saves_go(tmp_path: Path) -> None:
    checkpoints, _ = opened(tmp_path, keep=2)
    for step in (1, 2, 3, 10):
        save(checkpoints, made(), step)
    assert [name[:13] for name in commit.committed(tmp_path)] == ["step-00000010", "step-00000003"]


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_refused_by_file_name_and_the_save_before_taken(two_saves, seed) -> None:
    folder, newest = two_saves
    directory = folder / newest
    draw = random.Random(seed)
    file = draw.choice(sorted(directory.iterdir()))
    kept = file.read_bytes()
    try:
        kind = seed % 3
        if kind == 0:
            at = draw.randrange(len(kept))
            file.write_bytes(kept[:at] + bytes([kept[at] ^ (1 << seed % 8)]) + kept[at + 1 :])
        elif kind == 1:
            file.write_bytes(kept[: draw.randrange(len(kept))])
        elif file.name != commit.COMMIT_FILE:
            file.unlink()
        checkpoints, said = opened(folder)
        _, body = checkpoints.newest()
        is_untouched = kind == 2 and file.name == commit.COMMIT_FILE
        assert body["step"] == (4 if is_untouched else 3)
        assert is_untouched or (newest in said[0] and file.name in said[0])
    finally:
        checkpoints.close()
        file.write_bytes(kept)


@pytest.fixture(scope="module")
def two_saves(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("two")
    checkpoints, _ = opened(folder)
    save(checkpoints, stepped(made()), 3)
    save(checkpoints, stepped(made()), 4)
    checkpoints.close()
    return folder, commit.committed(folder)[0]


def test_saves_that_are_all_damaged_are_not_a_new_run(tmp_path: Path) -> None:
    checkpoints, said = opened(tmp_path)
    save(checkpoints, made(), 1)
    next(tmp_path.glob("step-*/shard*")).unlink()
    with pytest.raises(LoopError, match="none of the 1 saves"):
        checkpoints.newest()
    assert "shard-00001" in said[0]
    assert "is missing" in said[0]


def test_a_file_that_does_not_belong_is_refused(tmp_path: Path) -> None:
    checkpoints, said = opened(tmp_path)
    save(checkpoints, made(), 1)
    (next(tmp_path.glob("step-*")) / "more.safetensors").write_bytes(b"")
    with pytest.raises(LoopError):
        checkpoints.newest()
    assert "more.safetensors does not belong to it" in said[0]


def test_a_full_disk_leaves_the_save_before(tmp_path: Path, monkeypatch) -> None:
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, stepped(made()), 3)

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    save(checkpoints, stepped(made()), 4)
    assert "No space left" in checkpoints.outcome.failure
    monkeypatch.undo()
    assert len(list(tmp_path.glob("step-*"))) == 1
    assert load(checkpoints, made()) == 3
    save(checkpoints, made(), 5)
    assert checkpoints.outcome.failure is None


def test_no_pickle_is_opened(tmp_path: Path, monkeypatch) -> None:
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, stepped(made()), 3)

    def refuse(*_args, **_more):
        raise AssertionError("a pickle was opened")

    for module, name in [(pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")]:
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert load(checkpoints, made()) == 3
    for file in tmp_path.glob("step-*/*"):
        head = file.read_bytes()[:2]
        assert head[:1] != b"\x80"
        assert head != b"PK"


@pytest.mark.parametrize("change", ["wider", "fewer", "more", "groups", "dtype"])
def test_a_save_of_something_else_is_refused(tmp_path: Path, change: str) -> None:
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, stepped(made()), 3)
    objects = made(width=5 if change == "wider" else 4)
    if change == "fewer":
        objects["model"] = objects["model"][:2]
        objects["optimizer"] = torch.optim.AdamW(objects["model"].parameters())
    elif change == "more":
        objects["ema"] = nn.Linear(1, 1)
    elif change == "groups":
        objects["optimizer"] = torch.optim.AdamW(objects["model"].parameters())
    elif change == "dtype":
        objects["model"].double()
    with pytest.raises(LoopError) as error:
        load(checkpoints, objects)
    assert error.value.hint


def test_a_folder_is_one_runs(tmp_path: Path) -> None:
    _checkpoints, _ = opened(tmp_path)
    if (pid := os.fork()) == 0:
        try:
            opened(tmp_path)
        except LoopError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


VALUES = {
    "a": (1, 2.5, None, True),
    "b": collections.Counter({3: 1}),
    "c": {1: "x", 2: [float("inf"), b"\x00\xff"]},
    "d": {"$tuple": 1},
    "e": {4, 5},
}


def test_values_come_back_as_they_were() -> None:
    text = sealed({"values": encoded(VALUES, "values")})
    found = decoded(unsealed(text)["values"])
    assert found == VALUES
    assert type(found["a"]) is tuple
    assert type(found["b"]) is collections.Counter


def test_any_changed_byte_breaks_the_seal() -> None:
    text = sealed({"step": 12, "tree": encoded(VALUES, "")})
    data = text.encode()
    for at in range(len(data)):
        for bit in (0, 3, 5):
            other = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            with contextlib.suppress(UnicodeDecodeError):
                assert unsealed(other.decode()) is None
    assert json.loads(text)["body"]["step"] == 12


def test_what_no_save_can_hold_is_refused_by_name() -> None:
    with pytest.raises(LoopError, match=r"`scheduler\.f` is of type builtin_function"):
        encoded({"f": builtins.print}, "scheduler")


def test_intervals_follow_cost_and_rate() -> None:
    assert best_interval_s(1.0, 3600.0) == pytest.approx((2 * 3600) ** 0.5, rel=0.02)
    assert best_interval_s(1.0, 36000.0) > best_interval_s(1.0, 3600.0) > best_interval_s(0.1, 3600)
    assert best_interval_s(10.0, 4.0) == 4.0
    assert pace_of(0.1, 60.0, 100.0).interval_s == 120.0
    assert "no rate" in pace_of(0.1, 1.0, None).reason
    assert pace_of(3.0, 3.0, None).interval_s == pytest.approx(300.0)


@pytest.mark.parametrize("parts", [[slice(0, 6)], [slice(2, 6), slice(0, 2)]])
def test_groups_are_found_by_their_parameters(tmp_path: Path, parts: list[slice]) -> None:
    """Saved as two groups, taken up as one and as two in the other order."""
    objects = made()
    for group, rate in zip(objects["optimizer"].param_groups, [0.3, 0.3], strict=True):
        group["lr"] = group["initial_lr"] = rate
    objects["scheduler"] = torch.optim.lr_scheduler.StepLR(objects["optimizer"], 2)
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, stepped(objects), 3)
    model = made()["model"]
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": weights[one]} for one in parts], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    new = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    assert load(checkpoints, new) == 3
    for whole in (objects, new):
        torch.manual_seed(9)
        stepped(whole)
    for mine, other in zip(model.parameters(), objects["model"].parameters(), strict=True):
        assert torch.equal(mine, other)
    assert [group["lr"] for group in optimizer.param_groups] == [
        objects["optimizer"].param_groups[0]["lr"]
    ] * len(parts)


def test_what_stages_cannot_divide_is_refused_by_name(tmp_path: Path) -> None:
    """L-BFGS keeps one direction over all weights: no stage's part of it is known."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters())
    optimizer.step(lambda: _closed(model))
    checkpoints, _ = opened(tmp_path)
    save(checkpoints, {"model": model, "optimizer": optimizer}, 1)
    again = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    same = {"model": again, "optimizer": torch.optim.LBFGS(again.parameters())}
    load(checkpoints, same)
    _closed(again)
    assert same["optimizer"].step(lambda: _closed(again)) == optimizer.step(lambda: _closed(model))
    stage = nn.Sequential(nn.Linear(3, 4))
    stage.is_stage = True
    part = {"model": stage, "optimizer": torch.optim.LBFGS(stage.parameters())}
    with pytest.raises(LoopError, match=r"`d` of `0\.weight` is \[21\], and the weight is"):
        load(checkpoints, part)


def _closed(model: nn.Module) -> torch.Tensor:
    model.zero_grad()
    loss = model(torch.linspace(-1, 1, 15).view(5, 3)).square().mean()
    loss.backward()
    return loss


def test_an_optimizer_without_names_goes_on_under_its_own_strategy_only() -> None:
    class Own(torch.optim.SGD):
        def state_dict(self):
            return super().state_dict()

    model = nn.Linear(2, 2)
    objects = {"model": model, "optimizer": Own(model.parameters(), lr=0.1)}
    with pytest.raises(LoopError, match="saved as whole, now tp2"):
        refuse_nameless(objects, "", "tp2")
    refuse_nameless(
        {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}, "", "tp2"
    )
