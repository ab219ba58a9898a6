"""A file is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.store import save_workload
from paceline.model.reading.load import load_workload
from paceline.writing import whole_file, write_whole


def write_half(path: Path, failure: BaseException) -> None:
    with whole_file(path) as draft:
        draft.write_text("half")
        raise failure


def test_what_stood_there_survives_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("before")
    with pytest.raises(InvalidInputError, match="No space left"):
        write_half(path, OSError(28, "No space left on device"))
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_an_interruption_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    with pytest.raises(KeyboardInterrupt):
        write_half(path, KeyboardInterrupt())
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "after")
    assert link.is_symlink()
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("where", [".", "no/such/folder/a.txt", "a.txt/b.txt"])
def test_a_place_that_takes_no_file_is_an_error_of_the_user(tmp_path: Path, where: str) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InvalidInputError, match="cannot write") as caught:
        write_whole(tmp_path / where, "text")
    assert caught.value.hint


def test_a_device_is_written_directly() -> None:
    write_whole(Path("/dev/null"), "text")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("where", ["no/such/folder/model.npz", "model.txt"])
def test_a_model_is_saved_where_it_can_be_read_again(tmp_path: Path, where: str) -> None:
    with pytest.raises(InvalidInputError):
        save_workload(load_workload("mnist-cnn"), tmp_path / where)
    assert list(tmp_path.iterdir()) == []
