"""Broken and hostile files: one clear message with a hint, status 2, and never a traceback."""

from __future__ import annotations

import io
import os
import pickle
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import AS_OF, EXAMPLES, Outcome, assert_refused

import paceline
from paceline.measurements import index

# Plan files -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    paceline.write_plan(
        paceline.plan("mnist-cnn", cloud="lambda", max_devices=1, as_of="2026-11-20"), path
    )
    return path.read_text(encoding="utf-8")


_HOSTILE_YAML = {
    "empty": "",
    "a list": "- 1\n- 2\n",
    "a word": "hello",
    "not YAML": "a: [1, 2\nb: }",
    "tabs": "a:\t\t- x\n\t- y",
    "two documents": "a: 1\n---\nb: 2\n",
    "python object": "a: !!python/object/apply:os.system ['true']\n",
    "billion laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    "recursion": "a: &a [*a]\n",
    "depth": "a: " + "[" * 500 + "]" * 500,
    "many digits": "schema_version: " + "9" * 100_000,
    "newer version": "schema_version: 99\n",
    "control characters": "a: \x00\x01\n",
    "a date": "2026-11-20",
    "a number key": "1: 2\n",
    "a merge key": "<<: {a: 1}\n",
    "same key twice": "schema_version: 1\nschema_version: 1\n",
}


@pytest.mark.parametrize("text", _HOSTILE_YAML.values(), ids=_HOSTILE_YAML)
@pytest.mark.parametrize("kind", ["plan", "facts"])
def test_hostile_yaml(run: Callable[..., Outcome], tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "input.yaml"
    path.write_text(text, encoding="utf-8")
    if kind == "plan":
        run("deploy", str(path), "--to", "torchrun").assert_helpful()
    elif text:
        run("devices", "a100", "--facts", str(path)).assert_helpful()


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"\x00" * 100, bytes(range(256)), b"a: 1\n" * 10**6],
    ids=["a mark", "zeros", "every byte", "too long"],
)
def test_files_that_are_no_text(
    run: Callable[..., Outcome], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "input.yaml"
    path.write_bytes(content)
    run("deploy", str(path), "--to", "torchrun").assert_helpful()
    run("devices", "a100", "--facts", str(path)).assert_helpful()


def test_a_folder_is_no_file(run: Callable[..., Outcome], tmp_path: Path) -> None:
    run("deploy", str(tmp_path), "--to", "torchrun").assert_helpful()
    run("devices", "a100", "--facts", str(tmp_path)).assert_helpful()
    run("score", str(tmp_path), "--out", str(tmp_path / "x.csv")).assert_helpful()


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just([]),
    st.just({}), st.sampled_from([-1, 0, 1e308, float("nan"), "24h", "dp8", "../../etc/passwd"]),
)  # fmt: skip


@EXAMPLES
@given(data=st.data())
def test_a_plan_file_with_one_value_changed(
    plan_text: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    plan = yaml.load(plan_text, yaml.CSafeLoader)
    _change_one_value(plan, data)
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(yaml.dump(plan, Dumper=yaml.CSafeDumper), encoding="utf-8")
    assert_refused(lambda: paceline.read_plan(path))


def _change_one_value(node: object, data: st.DataObject) -> None:
    while True:
        assert isinstance(node, (dict, list))
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if isinstance(child, (dict, list)) and child and data.draw(st.booleans()):
            node = child
            continue
        node[key] = data.draw(_SCALARS)
        return


@EXAMPLES
@given(start=st.integers(0, 20_000), length=st.integers(0, 50), filler=st.text(max_size=10))
def test_a_plan_file_with_a_piece_cut_out(
    plan_text: str,
    tmp_path_factory: pytest.TempPathFactory,
    start: int,
    length: int,
    filler: str,
) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    damaged = plan_text[:start] + filler + plan_text[start + length :]
    path.write_text(damaged, encoding="utf-8", errors="replace")
    assert_refused(lambda: paceline.read_plan(path))


_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "devices",
                    "offers",
                    "machines",
                    "name",
                    "device",
                    "memory_bytes",
                    "usd_per_hour",
                    "peak_flop_per_s",
                    "num_devices",
                    "priced_on",
                    "schema_version",
                ]
            ),
            children,
            max_size=4,
        ),
    ),
    max_leaves=10,
)


@EXAMPLES
@given(document=_DOCUMENTS)
def test_facts_of_any_shape(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    path = tmp_path_factory.mktemp("facts") / "facts.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert_refused(lambda: paceline.devices("a100", facts=[path]))


@EXAMPLES
@given(text=st.text(max_size=200))
def test_facts_of_any_text_as_toml(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("facts") / "facts.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    assert_refused(lambda: paceline.devices("a100", facts=[path]))


# Tables -----------------------------------------------------------------------------------------

_HOSTILE_CSV = {
    "empty": b"",
    "no columns": b"\n\n",
    "other columns": b"a,b\n1,2\n",
    "NUL": b"model,gpu\n\x00,\x00\n",
    "not UTF-8": b"model,gpu\n\xff\xfe,a100\n",
    "one huge cell": b"model,gpu\n" + b"x" * 300_000 + b",a100\n",
    "open quote": b'model,gpu\n"resnet50,a100\n',
}


@pytest.mark.parametrize("content", _HOSTILE_CSV.values(), ids=_HOSTILE_CSV)
def test_hostile_tables(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert_refused(lambda: paceline.score(path, tmp_path / "out.csv"))


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["resnet50", "gpt2", "", "nothing", "../../x", "resnet50;rm"]),
        st.sampled_from(["A100", "", "NVIDIA A100-SXM4-80GB", "abacus"]),
        st.sampled_from(["train", "infer", "", "dream"]),
        st.sampled_from(["fp16", "TF32/FP32", "", "fp3"]),
        st.sampled_from(["1", "64", "0", "-3", "1e99", "nan", "", "many"]),
        st.sampled_from(["1", "8", "0", "-1", "", "0.5"]),
    ),
    max_size=4,
)


@EXAMPLES
@given(rows=_ROWS)
def test_rows_of_nonsense_are_answered_or_abstained_from(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    header = "model,gpu,task,precision,batch_per_gpu,n_gpus"
    (folder / "rows.csv").write_text("\n".join([header, *map(",".join, rows)]) + "\n")
    assert_refused(lambda: paceline.score(folder / "rows.csv", folder / "out.csv"))


# Workload files ---------------------------------------------------------------------------------


def _zip(members: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


class _Boom:
    """Would set an environment variable if a pickle of it were loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return (os.putenv, ("PACELINE_BOOM", "1"))


_HUGE = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 99), }"
)
#: Files by what they are, made where they are wanted: some unpack to hundreds of megabytes.
_HOSTILE_WORKLOADS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"hello",
    "empty zip": lambda: _zip({}),
    "zip of text": lambda: _zip({"a.npy": b"hello", "workload.json": b"{}"}),
    "a pickle": lambda: pickle.dumps(_Boom()),
    "pickled array": lambda: _zip(
        {"flop.npy": _npy(np.array([_Boom()], object), allow_pickle=True)}
    ),
    "bomb of arrays": lambda: _zip({f"a{i}.npy": bytes(30_000_000) for i in range(20)}),
    "a shape that lies": lambda: _zip({"flop.npy": _HUGE + b" " * 40 + b"\n"}),
    "nested zip": lambda: _zip({"workload.json": _zip({"x": b"0" * 10_000_000})}),
    "a path that climbs": lambda: _zip({"../../../tmp/x.npy": b"x", "workload.json": b"{}"}),
    "deep JSON": lambda: _zip({"workload.json": b"[" * 100_000 + b"]" * 100_000}),
}


@pytest.mark.parametrize("kind", _HOSTILE_WORKLOADS)
def test_hostile_workload_files(run: Callable[..., Outcome], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(_HOSTILE_WORKLOADS[kind]())
    run("plan", str(path), *AS_OF).assert_helpful()
    assert os.environ.get("PACELINE_BOOM") is None


@pytest.fixture(scope="module")
def workload_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("workload") / "model.npz"
    paceline.trace("lstm", save=path)
    return path.read_bytes()


@EXAMPLES
@given(data=st.data())
def test_a_workload_file_with_damaged_bytes(
    workload_bytes: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(workload_bytes)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    kept = data.draw(st.integers(0, len(damaged)))
    path = tmp_path_factory.mktemp("workload") / "model.npz"
    path.write_bytes(bytes(damaged[:kept]) if data.draw(st.booleans()) else bytes(damaged))
    assert_refused(lambda: paceline.trace(str(path)))


# Disks ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_cannot_be_written_is_no_bug() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "paceline", "models"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "error: cannot write the answer: No space left on device",
        "hint: make room there, or write elsewhere",
    ]


def test_a_purchase_file_without_a_purchase(run: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "purchases.toml"
    path.write_text("")
    run("own", str(path)).assert_helpful()


def test_a_store_whose_folder_takes_no_index(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(index, "_fill", full)
    said = run("export", str(tmp_path / "out.csv"), "--store", str(tmp_path / "store"))
    said.assert_helpful()
    assert not (tmp_path / "out.csv").exists()
