"""Which OpenCL device a request means: a record must be of the device that it names."""

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paceline.execution.worker import WORKERS

CPU, GPU = 2, 4


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(WORKERS))
    return importlib.import_module("opencl_engine")


def opencl_with(*kinds: int) -> Any:
    devices = [SimpleNamespace(type=kind) for kind in kinds]
    platforms = [SimpleNamespace(get_devices=lambda one=device: [one]) for device in devices]
    return SimpleNamespace(
        Error=RuntimeError,
        device_type=SimpleNamespace(CPU=CPU, GPU=GPU),
        get_platforms=lambda: platforms,
    )


@pytest.mark.parametrize(
    ("place", "kinds", "chosen"),
    [("cpu", (GPU, CPU), CPU), ("cuda", (CPU, GPU), GPU), (None, (CPU, GPU), GPU),
     (None, (CPU,), CPU)],
)  # fmt: skip
def test_the_device_is_of_the_kind_that_was_asked_for(engine, place, kinds, chosen):
    assert engine.choose_device(opencl_with(*kinds), place).type == chosen


@pytest.mark.parametrize(("place", "kinds"), [("cuda", (CPU,)), ("cpu", (GPU,)), (None, ())])
def test_no_device_of_another_kind_is_taken_instead(engine, place, kinds):
    with pytest.raises(engine.RequestError) as raised:
        engine.choose_device(opencl_with(*kinds), place)
    assert raised.value.kind == "unsupported"
