"""`predict --batch max`, whose the memory of a device is, and which share of its peak is used."""

import pytest
from tests.sampled import sampled

from paceline import predict
from paceline.errors import InvalidInputError, PacelineError

CASES = (
    ("vgg16", "t4", {}),
    ("bert-base", "3090", {}),
    ("llama-3-8b", "h100", {"task": "infer"}),
    ("unet", "4090", {"precision": "fp32"}),
)


@pytest.mark.parametrize(("model", "device", "options"), CASES, ids=lambda value: str(value))
def test_the_largest_batch_fits_and_no_larger_one(model, device, options) -> None:
    (largest,) = predict(model, device=device, batch="max", **options).cells
    size = largest.batch_per_device
    beyond = size + max(1, size // 100) + 1
    asked = predict(model, device=device, batch=(size, beyond), **options).cells
    assert [cell.status for cell in asked] == ["fits", "out of memory"]
    assert asked[0].memory_bytes.mid == pytest.approx(largest.memory_bytes.mid, rel=1e-6)
    assert asked[0].step_s.mid == pytest.approx(largest.step_s.mid, rel=1e-6)


def test_each_device_and_count_has_a_largest_batch_of_its_own() -> None:
    cells = predict("gpt2", device="t4,a100", devices=(1, 4), batch="max").cells
    assert len({(cell.device, cell.num_devices) for cell in cells}) == len(cells) == 4
    small, large = (
        {cell.batch_per_device for cell in cells if name in cell.device} for name in ("T4", "A100")
    )
    assert max(small) < min(large)


def test_where_nothing_fits_the_smallest_batch_says_so() -> None:
    (cell,) = predict("llama-3-8b", device="t4", batch="max").cells
    assert (cell.batch_per_device, cell.status) == (1, "out of memory")


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "gpt2"},
        {"model": "gpt2", "device": "AMD EPYC 9654 (Genoa)"},
        {"model": "llama-3-8b", "device": "h100", "task": "infer", "rps": 5.0},
    ],
    ids=["no device", "no limit", "an engine's own batch"],
)
def test_a_largest_batch_that_cannot_be_is_refused_with_a_hint(asked) -> None:
    with pytest.raises(InvalidInputError) as caught:
        predict(batch="max", **asked)
    assert isinstance(caught.value, PacelineError)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("model", "task"),
    sampled(
        [(m, t) for m in ("resnet50", "t5-base", "mixtral-8x7b") for t in ("train", "infer")],
        "resnet50", "t5-base", ("mixtral-8x7b", "infer"),
    ),
)  # fmt: skip
def test_parts_of_memory_sum_to_the_median(model: str, task: str) -> None:
    for cell in predict(model, device="a100", batch=(1, 8), devices=(8,), task=task).cells:
        parts = cell.memory_parts
        told = (
            parts.weights_bytes, parts.optimizer_bytes, parts.process_bytes, parts.rest_bytes,
        )  # fmt: skip
        assert min(told) >= 0.0
        assert sum(told) == pytest.approx(cell.memory_bytes.mid, rel=1e-6)


def test_weights_and_states_are_those_of_the_parameters() -> None:
    grid = predict("vgg16", device="a100", batch=(8,), optimizer="adam", precision="fp32")
    (cell,) = grid.cells
    assert cell.memory_parts.weights_bytes == 4 * grid.num_parameters
    assert cell.memory_parts.optimizer_bytes == pytest.approx(8 * grid.num_parameters, rel=1e-3)


def test_devices_that_share_the_state_hold_a_part_each() -> None:
    def parts(count: int):
        (cell,) = predict(
            "gpt2", device="a100", batch=(4,), devices=(count,), sharding="zero3"
        ).cells
        return cell.memory_parts

    two, eight = parts(2), parts(8)
    assert eight.optimizer_bytes == pytest.approx(two.optimizer_bytes / 4, rel=0.01)
    assert eight.weights_bytes == pytest.approx(two.weights_bytes / 4, rel=0.01)


@pytest.mark.parametrize("model", ["gpt2", "vit_b_16"])
def test_what_is_repeated_counts_in_the_time_and_not_in_the_share_of_the_peak(model: str) -> None:
    """Model FLOP are those of the model, whatever is kept (PaLM, arXiv:2204.02311, appendix B)."""

    def asked(checkpointing: str):
        (cell,) = predict(model, device="a100", batch=(8,), checkpointing=checkpointing).cells
        return cell

    kept, repeated = asked("none"), asked("full")
    assert repeated.step_s.mid > 1.15 * kept.step_s.mid
    flop = [cell.mfu_frac * cell.step_s.mid for cell in (kept, repeated)]
    assert flop[1] == pytest.approx(flop[0], rel=1e-6)


def test_the_share_of_the_peak_is_that_of_six_flop_a_parameter_and_token() -> None:
    """The usual count (Kaplan et al., arXiv:2001.08361), attention and the embedding aside."""
    grid = predict("llama-3-8b", device="h100", batch=(4,), devices=(8,), seq=512)
    (cell,) = grid.cells
    tokens_per_s = cell.samples_per_s.mid / 8
    counted = 6 * grid.num_parameters * tokens_per_s / 989.4e12
    assert cell.mfu_frac == pytest.approx(counted, rel=0.06)
