"""Tables as other programs write them say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.app.scoring.rows import read_rows
from paceline.errors import InvalidInputError

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
        '{"model": "resnet50", "gpu": "A100", "batch_per_gpu": 64, "unit": "img/s"}\n'
        '{"model": "vgg16", "gpu": "H100", "batch_per_gpu": 8, "unit": null}\n',
    ],
    ids=["semicolons", "tabs", "windows", "capitals", "decimals", "other order", "JSON lines"],
)
def test_spellings_of_a_table_say_the_same(tmp_path: Path, text: str) -> None:
    assert rows_of(tmp_path, text) == rows_of(tmp_path, PLAIN)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert rows_of(tmp_path, PLAIN, "utf-8-sig") == rows_of(tmp_path, PLAIN)


def test_thousands_may_be_separated(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, 'model,gpu,global_batch\nresnet50,A100,"1,024"\n')
    assert row.global_batch == 1024


@pytest.mark.parametrize(
    "text", ["", "gpu\nA100\n", "model,gpu\n", '{"gpu": "A100"}', '{"gpu"', '{"gpu": "A100"}\n[]']
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInputError):
        rows_of(tmp_path, text)
