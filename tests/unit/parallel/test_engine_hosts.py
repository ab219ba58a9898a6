"""What an engine's host does for each request."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallel.engine_hosts import engine_host, hosted_step_s

SECONDS = st.floats(1e-4, 1.0)
REQUESTS = st.integers(0, 1024)


def paced(step_s: float, requests: int, request_s: float, *, overlaps: bool) -> float:
    seconds = np.array(step_s), np.array(float(requests))
    return float(hosted_step_s(*seconds, request_s, overlaps=overlaps))


@given(SECONDS, REQUESTS, st.floats(0.0, 1e-3))
def test_beside_the_device_is_never_slower_than_between_its_steps(step_s, requests, request_s):
    beside = paced(step_s, requests, request_s, overlaps=True)
    between = paced(step_s, requests, request_s, overlaps=False)
    assert step_s <= beside <= between <= 2 * beside + 1e-12


@given(SECONDS, REQUESTS, SECONDS)
def test_more_requests_are_never_faster(step_s, requests, request_s):
    for overlaps in (True, False):
        fewer = paced(step_s, requests, request_s, overlaps=overlaps)
        assert paced(step_s, requests + 1, request_s, overlaps=overlaps) >= fewer


def test_a_host_without_work_changes_nothing():
    assert paced(0.02, 64, 0.0, overlaps=False) == paced(0.02, 64, 0.0, overlaps=True) == 0.02


def test_engines_are_known_by_what_tables_call_them():
    names = {"vLLM": "vllm", "SGLang 0.5": "sglang", "TRT-LLM": "trtllm", "trtllm": "trtllm"}
    for name, engine in names.items():
        host = engine_host(name)
        assert host is not None
        assert host.engine == engine
        assert 0.0 < host.path_s < 1.0
    assert engine_host("PyTorch") is None


def test_an_engine_whose_host_was_not_measured_says_so():
    host = engine_host("sglang")
    assert host is not None
    assert host.request_s is None
    assert not host.overlaps("sglang 9.9")
