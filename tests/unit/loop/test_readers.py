"""Readers: every sample by its index, its label and its name; damage is counted."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.loop import damage, samples

from paceline.loop.decode import DamagedSample
from paceline.loop.readers import Synthetic, UnreadableData, open_reader
from paceline.loop.readers import tables as table_readers


def _as_folder(root: Path) -> Path:
    root.mkdir()
    (root / "data.mdb").write_bytes(samples.lmdb_file(root.with_suffix(".one")).read_bytes())
    return root


@pytest.mark.parametrize(
    ("name", "make", "labels"),
    [
        ("a.tar", samples.tar, True),
        ("b.parquet", samples.parquet, True),
        ("c.arrow", samples.arrow, True),
        ("d.mdb", samples.lmdb_file, False),
        ("e", _as_folder, False),
    ],
)
def test_every_format_gives_the_bytes_that_were_stored(tmp_path, name, make, labels) -> None:
    reader = open_reader(make(tmp_path / name))
    assert len(reader) == 8
    for index in (7, 0, 3, 4):
        stored = reader.read(index)
        assert bytes(stored.data) == samples.encoded(seed=index)
        assert stored.label == (index % 3 if labels else -1)
    assert name.split(".")[0] in reader.name_of(5)
    assert not reader.damaged
    again = pickle.loads(pickle.dumps(reader))
    assert bytes(again.read(6).data) == samples.encoded(seed=6)


def test_folders_are_classes_in_alphabetical_order(tmp_path: Path) -> None:
    samples.folder(tmp_path)
    (tmp_path / "class0" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    reader = open_reader(tmp_path)
    assert reader.classes == ["class0", "class1", "class2"]
    assert [reader.read(i).label for i in range(12)] == [0] * 4 + [1] * 4 + [2] * 4
    assert reader.name_of(4) == str(tmp_path / "class1" / "0001.jpg")


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(samples.encoded("PNG", seed=number))
    reader = open_reader(tmp_path)
    assert reader.classes is None
    assert {reader.read(i).label for i in range(3)} == {-1}


def test_long_names_and_labels_before_images_are_read_from_tars(tmp_path: Path) -> None:
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w", format=kind) as shard:
            for suffix, data in (("cls", b"7"), ("jpg", samples.encoded()), ("json", b"{}")):
                member = tarfile.TarInfo(f"{'deep/' * 40}sample{'x' * 90}.{suffix}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
        reader = open_reader(path)
        assert [reader.read(0).label, len(reader)] == [7, 1]
        assert "x" * 90 in reader.name_of(0)


def test_a_torn_tar_keeps_what_comes_before_and_is_named(tmp_path: Path) -> None:
    path = samples.tar(tmp_path / "a.tar")
    whole = path.read_bytes()
    for cut in (len(whole) // 2, len(whole) // 3, 512 * 7, 512 * 7 + 100):
        path.write_bytes(whole[:cut])
        reader = open_reader(path)
        assert 0 < len(reader) < 8
        assert [one.name for one in reader.damaged] == [str(path)]


@pytest.mark.parametrize(("count", "size"), [(1, 10), (300, 20), (40, 5000), (3000, 300), (0, 1)])
def test_pages_of_an_lmdb_hold_what_the_library_wrote(
    tmp_path: Path, count: int, size: int
) -> None:
    path = samples.lmdb_file(tmp_path / "x.mdb", count, size)
    reader = open_reader(path)
    assert len(reader) == count
    assert not reader.damaged
    for index in range(0, count, 7):
        assert reader.read(index).data == bytes([index % 251]) * size


def test_values_of_an_lmdb_are_never_unpickled(tmp_path: Path) -> None:
    value = pickle.dumps({"image": 1})
    reader = open_reader(samples.lmdb_of(tmp_path / "p.mdb", {b"key": value}))
    assert reader.read(0).data == pickle.dumps({"image": 1})


def test_an_object_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], object), allow_pickle=True)
    reader = open_reader(tmp_path / "o.npy", window=1)
    assert "Python objects" in reader.damaged[0].reason


def test_a_row_group_that_unfolds_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(table_readers, "_GROUP_BYTES", 10**6)
    rows = pa.table({"image": [bytes(100_000)] * 200})
    pq.write_table(rows, tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10**6
    with pytest.raises(DamagedSample, match="row group of over"):
        open_reader(tmp_path / "bomb.parquet").read(0)


def test_token_windows_overlap_by_one(tmp_path: Path) -> None:
    for name in ("a.bin", "a.npy"):
        reader = open_reader(samples.tokens(tmp_path / name), window=100, dtype="uint16")
        assert len(reader) == 9
        assert reader.read(2).data.tolist() == list(range(200, 301))


def test_a_window_never_spans_two_files(tmp_path: Path) -> None:
    files = [samples.tokens(tmp_path / f"{n}.npy", 250) for n in range(2)]
    reader = open_reader(files, window=100)
    assert [reader.read(i).data[0] for i in range(len(reader))] == [0, 100, 0, 100]


def test_arrays_and_data_sets_are_readers(tmp_path: Path) -> None:
    arrays = open_reader((np.arange(12).reshape(6, 2), np.arange(6)))
    assert arrays.read(4).data.tolist() == [8, 9]
    assert arrays.read(4).label == 4
    data_set = open_reader([(np.zeros(3), n) for n in range(5)])
    assert [len(data_set), data_set.kind, data_set.read(3).label] == [5, "python", 3]
    made_up = Synthetic(10, (4, 4, 3))
    assert (made_up.read(3).data == made_up.read(3).data).all()


@pytest.mark.parametrize("spec", ["nowhere", "*.none", 7])
def test_what_no_reader_knows_is_refused(spec: object) -> None:
    with pytest.raises(UnreadableData):
        open_reader(spec)


def test_empty_folders_and_bare_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match="no image below"):
        open_reader(tmp_path)
    with pytest.raises(UnreadableData, match="say the window"):
        open_reader(samples.tokens(tmp_path / "t.bin"))
    with pytest.raises(UnreadableData, match="what numbers"):
        open_reader(tmp_path / "t.bin", window=10)


def test_damage_is_counted_and_named(tmp_path: Path) -> None:
    found = damage.run(450, 3, tmp_path, tell=lambda _: None)
    kinds = {line.rsplit(" ", 1)[1] for line in found}
    assert kinds == {"whole", "counted", "refused"}
    counted = {line.split(":")[0] for line in found if line.endswith("counted")}
    assert counted >= {"a.jpg", "b.png", "c.tar", "d.parquet", "e.arrow", "f.mdb", "h.npy"}
