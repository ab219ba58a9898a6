"""What is known of engines, by the names that people and tables give them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import read_precision
from paceline.errors import UnknownNameError
from paceline.stack.engines import (
    USUAL_ENGINE,
    USUAL_LOOP,
    EngineProfile,
    StepLimits,
    _tables,
    engine_in,
    engines,
    find_engine,
)

CATALOG = load_catalog()


def test_engines_are_known_by_what_tables_call_them():
    names = {"vLLM": "vllm", "SGLang 0.5": "sglang", "TRT-LLM": "trtllm", "trtllm": "trtllm"}
    for name, engine in names.items():
        found = engine_in(name)
        assert found is not None
        assert found.name == engine == find_engine(name).name
        assert 0.0 < found.path_s < 1.0
    assert engine_in("PyTorch") is None
    assert find_engine("PyTorch").name == "torch"


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(UnknownNameError, match="sglnag") as refused:
        find_engine("sglnag")
    assert "sglang" in refused.value.hint


def test_an_engine_whose_host_was_not_measured_says_so():
    engine = find_engine("sglang 9.9")
    assert engine.request_s is None
    assert not engine.overlaps


def test_the_newest_release_is_meant_unless_one_is_named():
    assert find_engine("vllm").overlaps
    assert find_engine("vllm==0.14.1").overlaps
    assert not find_engine("vllm 0.13").overlaps


def test_a_release_is_the_number_behind_the_name_of_the_engine():
    found = engine_in("MLPerf v4.1; vLLM 0.5.2")
    assert found is not None
    assert found.release == (0, 5)


def test_what_runs_unless_stated_is_an_engine_and_a_loop():
    assert engines()[USUAL_ENGINE].serves
    assert not engines()[USUAL_LOOP].serves


def test_an_engine_serves_where_it_has_kernels():
    vllm = find_engine("vllm")
    h100, p100 = (find_device(CATALOG, name) for name in ("h100", "Tesla P100 PCIe 16GB"))
    assert vllm.serves_on(h100, "cuda")
    assert not vllm.serves_on(p100, "cuda")
    assert not vllm.serves_on(h100, "cpu")


def test_a_device_with_a_driver_of_its_own_is_served_by_what_names_that():
    """It is predicted by the kernels of another maker, which do not run on it."""
    apple, intel = (find_device(CATALOG, name) for name in ("Apple M2 Ultra", "Arc A770 16GB"))
    for name, own in (("vllm", intel), ("exllama", None), ("coreml", apple), ("openvino", intel)):
        served = [one for one in (apple, intel) if find_engine(name).serves_on(one, "rocm")]
        assert served == [one for one in (own,) if one is not None], name
    assert find_engine("llamacpp").serves_on(apple, "rocm")


def test_each_measured_fact_of_an_engine_has_a_source():
    ours = {"title", "spelling", "framework", "serves", "all_reduce", "source"}
    for name, row in _tables().items():
        if not engines()[name].serves:
            continue
        sourced = {field for source in row["source"] for field in source["fields"]}
        assert set(row) - ours == sourced, name
        assert all(source["note"] and source["read_on"] for source in row["source"])


def test_no_profile_has_a_fact_that_nobody_reads():
    known = {field.name for field in fields(EngineProfile)} | {"spelling", "source"}
    for row in _tables().values():
        assert set(row) <= known


def test_what_an_engine_leaves_for_its_cache() -> None:
    of_all, of_rest = (find_engine(name) for name in ("vllm", "trtllm"))
    rooms = [
        one.room_bytes(StepLimits(max_requests=1, chunk_tokens=1, memory_frac=0.9), 100.0, 60.0)
        for one in (of_all, of_rest)
    ]
    assert rooms == pytest.approx([30.0, 36.0])


def test_steps_of_early_releases_read_prompts_or_write_tokens() -> None:
    assert [find_engine(name).mixes for name in ("vllm", "vllm 0.8", "vllm 0.7", "sglang")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_an_engine_launches_and_sums_otherwise_where_a_driver_is_its_own() -> None:
    vllm = find_engine("vllm")
    h100, a100, intel = (find_device(CATALOG, n) for n in ("h100", "a100", "Max 1550"))
    assert [vllm.on(one).dispatcher for one in (h100, a100, intel)] == ["vllm", "vllm", "launches"]
    assert [vllm.on(one).all_reduce for one in (h100, intel)] == ["custom", "oneccl"]
    assert [vllm.on(one).chunk_tokens for one in (h100, a100, intel)] == [8192, 2048, 8192]
    assert vllm.on(h100).on(a100).chunk_tokens == 8192
    assert find_engine("llamacpp").on(intel).dispatcher == "vllm"


def test_formats_of_files_belong_to_one_engine() -> None:
    formats = [name for one in engines().values() for name in one.formats]
    assert len(formats) == len(set(formats))
    assert all(read_precision(name) in ("int4", "int8") for name in formats)
