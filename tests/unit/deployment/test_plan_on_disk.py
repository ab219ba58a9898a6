"""What a user names is read within limits, and written where a file can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import InvalidInputError
from paceline.planning.goal.files import dump_plan, load_plan
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.from_measurements import read_updates
from paceline.reading import is_file, read_text
from paceline.scoring.cells import read_cells
from paceline.writing import write_whole

from .plans import plan

LONG = "a" * 300
ENDLESS = Path("/dev/zero")


def test_a_file_without_end_is_refused_before_it_fills_the_memory() -> None:
    if not ENDLESS.exists():
        pytest.skip("this system has no endless device")
    with pytest.raises(InvalidInputError, match="larger than 4 MB"):
        read_text(ENDLESS, what="plan file")
    with pytest.raises(InvalidInputError, match="larger than"):
        read_cells(ENDLESS, columns=("model",), required=("model",))
    with pytest.raises(InvalidInputError, match="larger than"):
        read_updates(builtin_calibration(), ENDLESS)


def test_a_calibration_in_another_encoding_is_told(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        read_updates(builtin_calibration(), tmp_path / "c.json")


def test_a_name_that_no_file_can_have_is_none(tmp_path: Path) -> None:
    assert not is_file(tmp_path / LONG)
    with pytest.raises(InvalidInputError, match="File name too long"):
        write_whole(tmp_path / LONG, "text")


def test_a_link_to_itself_is_written_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidInputError, match="in a circle"):
        write_whole(tmp_path / "loop", "text")


def test_half_a_plan_is_refused_wherever_it_ends() -> None:
    lines = dump_plan(plan()).splitlines(keepends=True)
    assert load_plan("".join(lines)) == plan()
    for end in range(2, len(lines)):
        with pytest.raises(InvalidInputError):
            load_plan("".join(lines[:end]))


def test_a_plan_that_was_written_before_ends_were_marked_is_read() -> None:
    text = dump_plan(plan())
    old = "".join(line for line in text.splitlines(keepends=True)
                  if "last line is" not in line and line != "...\n")  # fmt: skip
    assert load_plan(old) == plan()


@pytest.mark.parametrize(
    ("old", "new"),
    [("num_nodes: 1", "num_nodes: -1"), ("devices_per_node: 8", "devices_per_node: 0"),
     ("batch_per_device: 256", "batch_per_device: 0"), ("microbatches: 1", "microbatches: 0")],
)  # fmt: skip
def test_a_plan_of_less_than_one_is_refused(old: str, new: str) -> None:
    text = dump_plan(plan())
    assert old in text
    with pytest.raises(InvalidInputError, match="greater than"):
        load_plan(text.replace(old, new))
