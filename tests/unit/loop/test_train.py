"""The script behind `paceline train` learns from token files, and says what a microbatch is."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

from paceline.loop import LoopError, layout, resuming, train  # noqa: E402
from paceline.loop.parallel.choice import CHOICE_VARIABLE  # noqa: E402


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setattr(layout, "_chosen", None)
    monkeypatch.setattr(resuming, "_runs", {})
    for name in ("WORLD_SIZE", CHOICE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def _given(**more):
    words = {"model": "mesh_models:GPT", "window": 12, "batch": 16, "saves": "saves", **more}
    return train.arguments([w for k, v in words.items() for w in (f"--{k}", str(v))])


@pytest.mark.parametrize("ending", ["npy", "bin"])
def test_a_decoder_learns_the_next_token(tmp_path, capsys, ending):
    tokens = np.tile(np.arange(50, dtype=np.uint16), 40)
    path = tmp_path / f"tokens.{ending}"
    np.save(path, tokens) if ending == "npy" else tokens.tofile(path)
    more = {} if ending == "npy" else {"dtype": "uint16"}
    train.train(_given(data=path, epochs=3, optimizer="adamw", rate=0.01, **more))
    losses = [float(line.split()[3]) for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 3
    assert losses[0] > np.log(50) / 2 > losses[2]


def test_the_example_is_one_microbatch(monkeypatch):
    monkeypatch.setenv(CHOICE_VARIABLE, '{"strategy": "pp2@1f1b/mb4"}')
    assert train.example_of(_given(data="x")).shape == (4, 12)
    assert train.example_of(_given(data="x", window=0, size=8)).shape == (4, 3, 8, 8)


def test_an_unknown_decoder_is_refused():
    with pytest.raises(LoopError, match="transformers has no model `nonsense`"):
        train.build("nonsense", 0, is_decoder=True)


def test_tokens_are_not_generated():
    with pytest.raises(LoopError, match="no tokens are generated"):
        train.open_data(_given(data="generated"), torch.device("cpu"))
