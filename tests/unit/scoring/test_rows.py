"""Tables as other programs write them say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import InvalidInputError
from paceline.scoring.rows import parse_row, read_rows

PLAIN = "model,gpu,batch_per_gpu,unit\nresnet50,A100,64,img/s\nvgg16,H100,8,\n"


def rows_of(tmp_path: Path, text: str, encoding: str = "utf-8"):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode(encoding))
    return read_rows(path)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("model,gpu", "Model, GPU"),
        PLAIN.replace("64", "64.0"),
        "unit,batch_per_gpu,gpu,model,colour\nimg/s,64,A100,resnet50,red\n,8,H100,vgg16,\n",
        "\n,,\n" + PLAIN,
        PLAIN.replace("64", '"64"').replace("model", '"model"'),
        '{"model": "resnet50", "gpu": "A100", "batch_per_gpu": 64, "unit": "img/s"}\n'
        '{"model": "vgg16", "gpu": "H100", "batch_per_gpu": 8, "unit": null}\n',
    ],
    ids=[
        "semicolons",
        "tabs",
        "windows",
        "capitals",
        "decimals",
        "other order",
        "blank lines",
        "quotes",
        "JSON lines",
    ],
)
def test_spellings_of_a_table_say_the_same(tmp_path: Path, text: str) -> None:
    assert rows_of(tmp_path, text) == rows_of(tmp_path, PLAIN)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert rows_of(tmp_path, PLAIN, "utf-8-sig") == rows_of(tmp_path, PLAIN)


def test_a_spreadsheet_may_write_utf_16(tmp_path: Path) -> None:
    assert rows_of(tmp_path, PLAIN.replace(",", "\t"), "utf-16") == rows_of(tmp_path, PLAIN)


def test_a_name_may_go_over_two_lines(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, 'model,"a remark\nof two lines",gpu\nresnet50,,A100\n')
    assert (row.model, row.gpu) == ("resnet50", "A100")


def test_thousands_may_be_separated(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, 'model,gpu,global_batch\nresnet50,A100,"1,024"\n')
    assert row.global_batch == 1024


@pytest.mark.parametrize(
    "text", ["", "gpu\nA100\n", "model,gpu\n", '{"gpu": "A100"}', '{"gpu"', '{"gpu": "A100"}\n[]']
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInputError):
        rows_of(tmp_path, text)


@pytest.mark.parametrize("name", ["gpu", "batch_per_gpu", "throughput", "step_time_ms"])
def test_a_column_that_stands_there_twice_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} more than once"):
        rows_of(tmp_path, f"model,gpu,{name},{name}\nresnet50,A100,1,2\n")
    assert rows_of(tmp_path, "model,gpu,remark,remark\nresnet50,A100,a,b\n")


def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="line 4"):
        rows_of(tmp_path, 'model,gpu\nresnet50,A100\n"vgg16,A100\nalexnet,A100\n')


PYTORCH = {"model": "resnet50", "task": "train", "gpu": "A100", "batch_per_gpu": "64"}


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("n_gpus", "-2"), ("n_gpus", "1.5"), ("n_gpus", "many"), ("n_nodes", "-1"),
        ("n_nodes", "2.5"), ("batch_per_gpu", "-64"), ("batch_per_gpu", "abc"),
        ("batch_per_gpu", "inf"), ("global_batch", "1e30"), ("grad_accum", "-4"),
        ("grad_accum", "0.5"), ("seq_len", "-512"), ("seq_len", "2k"), ("img_size", "-224"),
        ("img_size", "224x"), ("gpu_mem_gb", "-80"), ("params_m", "-124"),
    ],
)  # fmt: skip
def test_a_cell_that_no_job_can_have_is_no_silent_default(name: str, cell: str) -> None:
    assert parse_row(PYTORCH | {name: cell}).damage == f"`{cell}` is no {name}"


@pytest.mark.parametrize("cell", ["512x1024", "1024 × 512"])
def test_a_rectangle_is_a_square_of_its_area(cell: str) -> None:
    row = parse_row(PYTORCH | {"img_size": cell})
    assert row.image_size is not None
    assert row.image_size**2 == pytest.approx(512 * 1024, rel=0.05)
    assert "of about the same area" in row.note


def test_a_model_may_be_called_by_its_size_of_pictures() -> None:
    named = parse_row(PYTORCH | {"model": "PSPNet R-50-D8 769x769"})
    assert named.image_size == 769
    assert parse_row(PYTORCH | {"model": "SlowFast R50 4x16"}).image_size is None


@pytest.mark.parametrize("cell", ["", " ", "nan", "N/A", "None", "-", "unknown"])
def test_a_cell_may_say_that_it_says_nothing(cell: str) -> None:
    names = ("n_gpus", "n_nodes", "grad_accum", "seq_len", "img_size", "gpu_mem_gb", "params_m")
    assert parse_row(PYTORCH | dict.fromkeys(names, cell)) == parse_row(PYTORCH)


def test_numbers_are_read_as_they_are_written_in_more_than_one_country() -> None:
    row = parse_row(
        PYTORCH | {"gpu_mem_gb": "80GB", "img_size": "224 x 224", "params_m": "25,6", "n_gpus": "8"}
    )
    assert (row.gpu_memory_gb, row.image_size, row.num_gpus) == (80, 224, 8)
    assert row.num_parameters == pytest.approx(25.6e6)
    assert row.damage == ""


def test_a_row_that_has_shifted_is_not_believed(tmp_path: Path) -> None:
    header = "model,task,gpu,batch_per_gpu\n"
    shifted, padded = rows_of(
        tmp_path, header + "resnet50,train,RTX 2080, mobile,64\nresnet50,train,A100,64,,\n"
    )
    assert "more cells than the header" in shifted.damage
    assert padded.damage == ""


def test_training_or_inference_is_never_taken_in_silence() -> None:
    assert "no task" in parse_row(PYTORCH | {"task": ""}).damage
    assert "`racing`" in parse_row(PYTORCH | {"task": "racing"}).note
    for task in ("Training", "inference", "text generation", "image classification"):
        row = parse_row(PYTORCH | {"task": task})
        assert (row.damage, row.note) == ("", "")
