import dataclasses
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.store import read_workload, save_workload
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("workload") / "lstm.npz"
    save_workload(load_workload("lstm"), path)
    return path


def test_a_workload_read_back_lowers_to_the_same_numbers(written):
    before = lower(load_workload("lstm").passes[0].graph, Configuration())
    after = lower(read_workload(written).passes[0].graph, Configuration())
    assert np.array_equal(before.costs.read_bytes, after.costs.read_bytes)
    assert np.array_equal(before.memory.by_owner, after.memory.by_owner)


def test_writing_twice_gives_the_same_bytes(written, tmp_path):
    save_workload(load_workload("lstm"), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == written.read_bytes()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="absent"):
        read_workload(tmp_path / "absent.npz")


@given(st.binary(max_size=400))
@settings(max_examples=60)
def test_garbage_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "garbage.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError):
        read_workload(path)


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_file_is_refused_or_still_a_workload(written, tmp_path_factory, data):
    content = bytearray(written.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(bytes(content))
    try:
        workload = read_workload(path)
    except InvalidInputError:
        return
    assert workload.passes


def rewritten(written, path, change):
    """Copy a workload file, with ``change(name, content)`` applied to each member."""
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return path


def with_column(written, path, name, change):
    """Copy a workload file, with ``change(array)`` applied to one of its columns."""
    with zipfile.ZipFile(written) as archive:
        names = json.loads(archive.read("workload.json"))["columns"]
        stream = io.BytesIO(archive.read("columns.bin"))
    changed = io.BytesIO()
    for one in names:
        array = np.load(stream)
        np.save(changed, change(array) if one == name else array, allow_pickle=True)
    return rewritten(
        written, path, lambda n, content: changed.getvalue() if n == "columns.bin" else content
    )


@pytest.mark.parametrize("member", ["0.ops.input_tensor", "0.tensors.storage"])
def test_a_pointer_outside_its_table_is_refused(written, tmp_path, member):
    def high(planes):
        planes[2, 0] = 10
        return planes

    with pytest.raises(InvalidInputError, match="pointer"):
        read_workload(with_column(written, tmp_path / "bad.npz", f"{member}.planes", high))


def test_columns_of_another_shape_are_refused(written, tmp_path):
    name = "0.tensors.storage.planes"
    with pytest.raises(InvalidInputError, match="planes"):
        read_workload(with_column(written, tmp_path / "bad.npz", name, lambda one: one[:3]))


def test_a_file_of_the_first_version_is_the_same_workload():
    old = read_workload(Path(__file__).parent / "data" / "workload_version_1.npz")
    new = load_workload("lstm")
    for left, right in zip(old.passes, new.passes, strict=True):
        for table in ("ops", "tensors", "storages"):
            columns = getattr(left.graph, table), getattr(right.graph, table)
            for field in dataclasses.fields(columns[0]):
                a, b = (getattr(one, field.name) for one in columns)
                assert a.dtype == b.dtype
                assert np.array_equal(a, b)


def test_a_newer_version_is_refused(written, tmp_path):
    def change(name, content):
        if not name.endswith(".json"):
            return content
        return json.dumps({**json.loads(content), "format_version": 99})

    with pytest.raises(InvalidInputError, match="version 99"):
        read_workload(rewritten(written, tmp_path / "new.npz", change))


def test_pickled_arrays_are_refused(written, tmp_path):
    pickled = np.array([{"a": 1}], dtype=object)
    path = with_column(written, tmp_path / "pickle.npz", "0.ops.kind", lambda _: pickled)
    with pytest.raises(InvalidInputError, match=r"pickle|Object"):
        read_workload(path)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("workload.json", "w") as member,
    ):
        for _ in range(600):
            member.write(b"\0" * 2**20)
    with pytest.raises(InvalidInputError, match="512 MiB"):
        read_workload(path)


def test_a_member_that_lies_about_its_size_is_refused(written, tmp_path):
    content = bytearray(written.read_bytes())
    place = content.rfind(b"PK\x01\x02")
    content[place + 24 : place + 28] = (10).to_bytes(4, "little")
    path = tmp_path / "liar.npz"
    path.write_bytes(bytes(content))
    with pytest.raises(InvalidInputError):
        read_workload(path)
