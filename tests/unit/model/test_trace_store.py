import dataclasses
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.model.graph import columns
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


def with_columns(written, path, change):
    """Copy a workload file, with ``change(columns)`` applied to its columns of whole numbers."""
    with zipfile.ZipFile(written) as archive:
        content = columns.written(change(list(columns.read(archive.read("columns.bin")))))
    return rewritten(written, path, lambda name, old: content if name == "columns.bin" else old)


def test_whatever_number_is_changed_is_refused_or_still_a_workload(written, tmp_path):
    """Pointers stay inside their tables, whichever column grows."""
    with zipfile.ZipFile(written) as archive:
        count = len(list(columns.read(archive.read("columns.bin"))))
    refused = 0
    for number in range(count):
        for far in (-(2**40), -3, 7, 2**40):

            def grown(all_columns, number=number, far=far):
                all_columns[number] = all_columns[number].copy()
                all_columns[number][-1:] += far
                return all_columns

            try:
                read = read_workload(with_columns(written, tmp_path / "bad.npz", grown))
            except InvalidInputError:
                refused += 1
            else:
                graph = read.passes[0].graph
                mentioned = graph.tensors.storage[graph.ops.input_tensor]
                assert len(graph.storages.elements[mentioned]) == graph.ops.input_start[-1]
    assert refused > count


def test_columns_that_are_missing_are_refused(written, tmp_path):
    with pytest.raises(InvalidInputError, match="StopIteration"):
        read_workload(with_columns(written, tmp_path / "bad.npz", lambda one: one[:-1]))


def test_rows_that_would_fill_memory_are_refused(written, tmp_path):
    with zipfile.ZipFile(written) as archive:
        header = json.loads(archive.read("workload.json"))
    modules = header["passes"][0]["modules"]
    row_of_each_op = max(map(len, modules))

    def long(all_columns):
        all_columns[row_of_each_op] = np.zeros(2**22, dtype=np.int64)
        return all_columns

    with pytest.raises(InvalidInputError, match="unpack to more"):
        read_workload(with_columns(written, tmp_path / "bad.npz", long))


@given(st.lists(st.text(alphabet="ab.0179", max_size=12), max_size=20))
@settings(max_examples=40)
def test_any_names_of_modules_come_back(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "named.npz"
    workload = load_workload("mnist-cnn")
    graph = workload.passes[0].graph
    modules = (*names, *graph.modules)
    one = dataclasses.replace(workload.passes[0], graph=dataclasses.replace(graph, modules=modules))
    save_workload(dataclasses.replace(workload, passes=(one,)), path)
    assert read_workload(path).passes[0].graph.modules == modules


def test_a_newer_version_is_refused(written, tmp_path):
    def change(name, content):
        if not name.endswith(".json"):
            return content
        return json.dumps({**json.loads(content), "format_version": 99})

    with pytest.raises(InvalidInputError, match="version 99"):
        read_workload(rewritten(written, tmp_path / "new.npz", change))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
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
