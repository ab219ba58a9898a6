"""`score_rows`: input columns only, one line per row, a reason for every abstention."""

import csv

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.scoring.rows import INPUT_COLUMNS, read_rows
from paceline.scoring.score import score_rows

BASE = {
    "model": "resnet50", "task": "train", "framework": "PyTorch 2.4.0", "precision": "amp",
    "compiler_flags": "nhwc; eager", "gpu": "A100-SXM4-80GB", "gpu_mem_gb": "80", "n_gpus": "1",
    "batch_per_gpu": "64", "img_size": "", "unit": "img/s", "throughput": "1000",
    "step_time_ms": "64", "peak_mem_gb": "7", "extra": "gmacs=4",
}  # fmt: skip


def score(tmp_path, *changes):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    table = [BASE | change for change in changes]
    with rows.open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({key for row in table for key in row}))
        writer.writeheader()
        writer.writerows(table)
    summary = score_rows(rows, out, catalog=load_catalog(), cache_folder=tmp_path.parent / "traced")
    with out.open(newline="") as file:
        return summary, list(csv.DictReader(file))


def test_every_row_has_one_line_in_order_and_a_summary(tmp_path):
    summary, lines = score(tmp_path, {}, {"model": "nobody knows this"}, {"batch_per_gpu": "128"})
    assert [line["row"] for line in lines] == ["0", "1", "2"]
    assert (summary.num_rows, summary.num_predicted) == (3, 2)
    assert "nobody knows this" in lines[1]["reason"]
    assert lines[1]["step_mid_s"] == ""


def test_measured_columns_are_never_seen(tmp_path):
    measured = ("throughput", "step_time_ms", "peak_mem_gb")
    assert not set(measured) & set(INPUT_COLUMNS)
    _, first = score(tmp_path, {})
    _, second = score(tmp_path, dict.fromkeys(measured, "1e9") | {"extra": "step_s=1e9;mfu=1"})
    _, third = score(tmp_path, dict.fromkeys((*measured, "extra"), ""))
    assert first == second == third


def test_intervals_hold_their_middle_and_throughput_is_items_over_time(tmp_path):
    _, (line,) = score(tmp_path, {})
    low, mid, high = (float(line[f"step_{part}_s"]) for part in ("low", "mid", "high"))
    assert 0 < low < mid < high
    assert float(line["throughput_mid"]) == pytest.approx(64 / mid, rel=1e-4)
    assert float(line["throughput_low"]) < float(line["throughput_high"])
    assert float(line["memory_low_bytes"]) <= float(line["memory_high_bytes"])


def test_two_devices_do_up_to_twice_the_work(tmp_path):
    _, (one, two) = score(tmp_path, {}, {"n_gpus": "2", "parallelism": "DP"})
    ratio = float(two["throughput_mid"]) / float(one["throughput_mid"])
    assert 1.5 < ratio <= 2.0


def test_accumulation_repeats_all_of_the_step_but_its_update(tmp_path):
    """SGD with momentum touches each of 25.6 million FP32 parameters 11 times."""
    batch = {"batch_per_gpu": "128"}
    rows = (batch | {"grad_accum": rounds} for rounds in ("1", "2", "4"))
    _, lines = score(tmp_path, *rows)
    one_s, two_s, four_s = (float(line["step_mid_s"]) for line in lines)
    assert 3.9 * one_s < four_s < 4 * one_s
    update_s = 2 * one_s - two_s
    assert update_s > 11 * 4 * 25.56e6 / 2.039e12
    assert four_s == pytest.approx(4 * one_s - 3 * update_s, rel=1e-3)


def test_a_batch_that_cannot_fit_is_called_so(tmp_path):
    _, (small, large) = score(tmp_path, {"batch_per_gpu": "8"}, {"batch_per_gpu": "100000"})
    assert (small["fits"], large["fits"]) == ("yes", "no")


def test_memory_says_yes_unsure_and_no_in_this_order(tmp_path):
    _, lines = score(tmp_path, *({"batch_per_gpu": str(b)} for b in range(200, 2000, 50)))
    words = [line["fits"] for line in lines]
    assert list(dict.fromkeys(words)) == ["yes", "unsure", "no"]
    capacity = find_device(load_catalog(), "A100 SXM4 80GB").capacity_bytes
    for line in lines:
        if line["fits"] == "yes":
            assert float(line["memory_high_bytes"]) <= capacity
        assert (line["fits"] == "no") == (float(line["memory_low_bytes"]) > capacity)
        assert (line["fits"] == "yes") == (float(line["chance_to_fit"]) >= 0.95)


def test_live_blocks_are_known_better_than_what_a_driver_shows(tmp_path):
    """The context of a process is in doubt, its fragments too; of live blocks neither is."""
    kinds = ("allocated", "reserved", "")
    _, lines = score(tmp_path, *({"batch_per_gpu": "8", "memory_kind": kind} for kind in kinds))
    ends = [[float(line[f"memory_{end}_bytes"]) for end in ("low", "high")] for line in lines]
    spreads = [high / low for low, high in ends]
    assert spreads == sorted(spreads)
    assert spreads[0] < 1.05


LLAMA = {
    "model": "Llama 2 7B", "framework": "LitGPT (PyTorch 2.1)", "precision": "bf16-true",
    "compiler_flags": "LoRA; quant None", "batch_per_gpu": "1",
}  # fmt: skip


def test_low_rank_adapters_and_narrow_weights_keep_less(tmp_path):
    full = LLAMA | {"compiler_flags": ""}
    narrow = LLAMA | {"compiler_flags": "LoRA; quant bnb.nf4"}
    _, lines = score(tmp_path, full, LLAMA, narrow)
    full_bytes, lora_bytes, narrow_bytes = (float(line["memory_mid_bytes"]) for line in lines)
    assert full_bytes > 2 * lora_bytes > 2 * narrow_bytes
    # 6.7 G weights of 2 bytes stay whole; of half a byte, all but the embedding and the head.
    assert lora_bytes > 13.4e9
    assert narrow_bytes < lora_bytes - 0.7 * 1.48 * 6.6e9


def test_adapters_of_another_kind_are_refused(tmp_path):
    other = {"model": "llama-3-8b", "compiler_flags": "Adapter v2; quant None"}
    _, (line,) = score(tmp_path, LLAMA | other)
    assert "adapters" in line["reason"]


def test_ranks_that_shard_keep_less(tmp_path):
    rows = [LLAMA | {"compiler_flags": "", "parallelism": how, "n_gpus": "8"}
            for how in ("DP", "FSDP")]  # fmt: skip
    _, (whole, sharded) = score(tmp_path, *rows)
    assert float(sharded["memory_mid_bytes"]) < float(whole["memory_mid_bytes"]) / 4


def test_a_name_of_several_sizes_fits_the_smallest_or_fails_the_largest(tmp_path):
    batches = range(40, 700, 20)
    rows = [
        {"batch_per_gpu": str(batch), "gpu": "V100", "gpu_mem_gb": size}
        for batch in batches
        for size in ("", "16", "32")
    ]
    _, lines = score(tmp_path, *rows)
    answers = {tuple(line["fits"] for line in lines[at : at + 3]) for at in range(0, len(lines), 3)}
    assert ("unsure", "no", "yes") in answers
    assert all((either == "yes") == (small == "yes") for either, small, _ in answers)
    assert all((either == "no") == (large == "no") for either, _, large in answers)
    assert "17 or 34 GB" in lines[0]["note"]
    assert lines[1]["note"] == ""


def test_layers_that_run_in_16_bits_keep_less_than_autocast(tmp_path):
    bert = {"model": "BERT-large SQuAD", "precision": "AMP fp16", "batch_per_gpu": "64"}
    generic, apex = score(
        tmp_path,
        bert | {"framework": "PyTorch 1.12.0"},
        bert | {"framework": "PyTorch NGC v1 (22.09/22.10 era)"},
    )[1]
    low, whole = float(apex["memory_low_bytes"]), float(generic["memory_low_bytes"])
    assert 0.5 * whole < low < 0.8 * whole
    # FP32 weights and two moments of 335 M parameters are there in either way.
    assert low > 335e6 * (2 + 4 + 8)


def test_an_engine_that_queues_fits_where_one_request_does(tmp_path):
    served = LLAMA | {
        "task": "infer", "framework": "vLLM", "precision": "bfloat16", "unit": "tok/s",
        "compiler_flags": "ISL=1000; OSL=1000", "batch_per_gpu": "100000",
    }  # fmt: skip
    batch = served | {"framework": "PyTorch 2.4.0", "compiler_flags": "", "seq_len": "1500"}
    tiny = served | {"gpu": "M60", "gpu_mem_gb": ""}
    _, (engine, plain, small) = score(tmp_path, served, batch, tiny)
    assert (engine["fits"], plain["fits"], small["fits"]) == ("yes", "no", "no")
    assert "wait" in engine["note"]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("images/sec", 64 / 0.064), ("samples per second", 64 / 0.064), ("it/s", 1 / 0.064),
        ("fps", 64 / 0.064), ("img/s/GPU", 64 / 0.064), ("ms/step", 64.0), ("s", 0.064),
    ],
)  # fmt: skip
def test_a_rate_or_time_comes_in_the_unit_that_was_asked_for(tmp_path, unit, expected):
    _, (line,) = score(tmp_path, {"unit": unit})
    step_s, value = float(line["step_mid_s"]), float(line["throughput_mid"])
    longer = step_s / 0.064
    is_time = unit in ("ms/step", "s")
    assert value == pytest.approx(expected * longer if is_time else expected / longer, rel=1e-4)
    assert line["throughput_unit"] == unit


def test_a_unit_that_nobody_knows_leaves_the_time(tmp_path):
    _, (line,) = score(tmp_path, {"unit": "furlongs"})
    assert (line["throughput_mid"], line["throughput_unit"]) == ("", "")
    assert float(line["step_mid_s"]) > 0
    assert "`furlongs`" in line["note"]


def test_pictures_have_no_tokens(tmp_path):
    _, (pictures, text) = score(tmp_path, {"unit": "tok/s"}, LLAMA | {"unit": "tok/s"})
    assert pictures["throughput_mid"] == ""
    assert "`tok/s`" in pictures["note"]
    assert float(text["throughput_mid"]) > 0


@pytest.mark.parametrize(
    "change",
    [
        {"model": "ResNet50 v1.5"}, {"model": "microsoft/resnet-50"}, {"model": "ResNet 50"},
        {"task": "Training"}, {"task": "fine-tuning"}, {"precision": "float16"},
        {"precision": "16-mixed"}, {"precision": "mixed precision"},
        {"gpu": "NVIDIA A100-SXM4-80GB"}, {"gpu": "1x A100-SXM4-80GB"},
    ],
)  # fmt: skip
def test_other_spellings_mean_the_same(tmp_path, change):
    _, (plain, spelled) = score(tmp_path, {}, change)
    assert spelled["step_mid_s"] == plain["step_mid_s"] != ""


def test_a_row_without_a_framework_says_what_was_assumed_and_is_less_sure(tmp_path):
    _, (stated, silent) = score(tmp_path, {}, {"framework": ""})
    assert silent["step_mid_s"] == stated["step_mid_s"]
    assert "PyTorch" in silent["note"]
    assert float(silent["step_high_s"]) > float(stated["step_high_s"])


def test_a_stated_limit_of_power_is_kept_and_slows_the_step(tmp_path):
    rows = [
        {"compiler_flags": f"optimizer=adadelta; power_limit_w={limit}"} for limit in (100, 999)
    ]
    _, (bound, free) = score(tmp_path, *rows)
    assert float(bound["power_w"]) == 100.0 < float(free["power_w"]) < 400.0
    assert 1.2 < float(bound["step_mid_s"]) / float(free["step_mid_s"]) < 2.0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"gpu": "Quantum 9000"}, "device"),
        ({"precision": "guess"}, "precision"),
        ({"batch_per_gpu": "", "global_batch": "", "task": "infer"}, "batch"),
        ({"batch_per_gpu": "-4"}, "batch"),
        ({"gpu_mem_gb": "3"}, "GB"),
        ({"n_gpus": "8", "parallelism": "TP=3 PP=2"}, "TP=3"),
        ({"precision": "fp8"}, "peak"),
        ({"n_gpus": "0"}, "no CPU"),
        ({"n_gpus": "1.5"}, "n_gpus"),
        ({"task": ""}, "task"),
    ],
)
def test_an_unanswerable_row_says_why(tmp_path, change, word):
    _, (line,) = score(tmp_path, change)
    assert word.lower() in line["reason"].lower()
    assert line["step_mid_s"] == line["throughput_mid"] == ""


def test_replicas_that_exchange_nothing_lose_nothing(tmp_path):
    rows = [
        {"model": "Transformer-XL large", "gpu": "RTX A5000", "gpu_mem_gb": "24",
         "parallelism": how, "n_gpus": count, "batch_per_gpu": "4", "global_batch": "",
         "unit": "tok/s"}
        for how in ("independent", "dp")
        for count in ("1", "8")
    ]  # fmt: skip
    _, lines = score(tmp_path, *rows)
    alone, eight, other, exchanged = (float(line["throughput_mid"]) for line in lines)
    assert eight == pytest.approx(8 * alone, rel=1e-5)
    assert alone == other
    assert exchanged < 0.9 * eight


def test_a_table_without_models_is_an_error(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match="model"):
        read_rows(path)


@pytest.mark.parametrize("content", [b"", b"model,gpu\n", b"\xff\xfe\x00", b"model\n1\n"])
def test_a_broken_table_is_an_error(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError):
        read_rows(path)


TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)
ODD = st.one_of(TEXT, st.sampled_from(["nan", "inf", "-1", "0", "1e308", "1e-308"]))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(st.sampled_from([c for c in INPUT_COLUMNS if c != "model"]), ODD))
@example({"task": "", "framework": "", "precision": "", "n_gpus": ":"})
def test_no_cell_crashes_it(tmp_path, change):
    summary, lines = score(tmp_path, change)
    assert summary.num_rows == len(lines) == 1
    assert bool(lines[0]["reason"]) != bool(lines[0]["step_mid_s"])


@pytest.mark.parametrize("beams", [1, 4])
def test_what_encoder_decoders_write_is_timed_by_whole_answers(tmp_path, beams):
    said = {"task": "infer", "batch_per_gpu": "2", "compiler_flags": f"beam={beams}"}
    _, (tokens, sound) = score(
        tmp_path,
        {**said, "model": "t5-base", "unit": "tok/s"},
        {**said, "model": "whisper-small", "unit": "audio seconds/s"},
    )
    for answer, per_item in ((tokens, 128), (sound, 30)):
        assert not answer["reason"]
        rate = float(answer["throughput_mid"]) * float(answer["step_mid_s"])
        assert rate == pytest.approx(2 * per_item, rel=1e-4)
