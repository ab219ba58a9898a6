"""Rows of training as their sources write them: formats, adapters, sizes, kinds of memory."""

import re

import pytest

from paceline.errors import PacelineError
from paceline.scoring.completion import completed
from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.naming.stated_degrees import sharding_of, stated_degrees
from paceline.scoring.naming.stated_lengths import longest_seen
from paceline.scoring.naming.training_words import stated_precision
from paceline.scoring.readings import Reading, read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.tables import read_table

ROW = {
    "model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100 80GB", "batch_per_gpu": "4",
    "seq_len": "4096", "framework": "HF Trainer, torch 2.6.0, transformers 4.52.4",
    "precision": "bf16",
}  # fmt: skip


def reading(**cells: str) -> Reading:
    return read_job(parse_row(completed(ROW | cells)))


@pytest.mark.parametrize(
    ("cell", "computed", "base", "kept"),
    [
        ("bfloat16 compute, 4-bit base", "bf16", "int4", ""),
        ("bf16 compute, nf4 base", "bf16", "int4", ""),
        ("fp16 compute, GPTQ int4 base", "fp16", "gptq", ""),
        ("bf16 compute, gptq int8 base", "bf16", "int8", ""),
        ("bf16 compute, awq base", "bf16", "awq", ""),
        ("bf16 compute, int8 base", "bf16", "int8", ""),
        ("fp16 O2 (fp32 master)", "fp16", "", "half-weights"),
        ("bf16 AMP (fp32 weights)", "bf16", "", "autocast"),
        ("bf16-mixed", "bf16", "", "autocast"),
        ("bf16; bf16 master, gradients and Adam states", "bf16", "", "pure"),
        ("bfloat16 weights with AMP autocast", "bf16", "", "narrow-autocast"),
    ],
)
def test_a_cell_says_what_is_computed_in_and_how_weights_are_kept(
    cell: str, computed: str, base: str, kept: str
) -> None:
    precision, settings = stated_precision(cell)
    assert precision == computed
    assert settings.get("frozen_weights", "") == base
    assert settings.get("training_format", "") == kept


def test_beside_a_frozen_base_everything_is_narrow_unless_the_trainer_casts() -> None:
    tuned = {"extra": "finetuning=lora;lora_rank=8", "precision": "bf16 compute, nf4 base"}
    formats = [
        reading(**tuned, framework=name).configuration.training_format
        for name in ("a trainer", "diffusers 0.36")
    ]
    assert formats == ["pure", "narrow-autocast"]


def test_blocks_are_recomputed_in_shares_and_segments() -> None:
    found = [
        reading(extra=f"finetuning=lora;recompute={words}").configuration.checkpoint_blocks
        for words in ("2_of_4_blocks", "segments of 3 blocks", "full (per block)")
    ]
    assert found == ["2/4", "3", "1"]


def test_fsdp_shards_wide_weights_under_mixed_precision() -> None:
    cast = {
        "extra": "finetuning=full", "precision": "bfloat16 weights with AMP autocast",
        "framework": "transformers 4.48", "n_gpus": "4", "parallelism": "FSDP full shard",
        "batch_per_gpu": "1",
    }  # fmt: skip
    assert reading(**cast).configuration.training_format == "half-weights"


@pytest.mark.parametrize("cell", ["bf16", "fp16", "TF32/FP32", "Mixed Precision", "W4A16 AWQ", ""])
def test_a_cell_with_one_format_is_read_as_before(cell: str) -> None:
    assert stated_precision(cell) == ("", {})


def test_remarks_are_settings_of_the_step() -> None:
    job = reading(
        precision="bfloat16 compute, 4-bit base",
        extra="finetuning=lora;lora_rank=16;lora_targets=q_proj+v_proj;recompute=full;"
        "cross_entropy=chunked (fused linear CE, Liger);attention=flash_attention_2;"
        "optimizer=adamw_8bit",
    )
    how = job.configuration
    assert (how.lora_rank, how.frozen_weights, how.training_format) == (16, "int4", "pure")
    assert "*q_proj" in how.lora_modules
    assert "*o_proj" not in how.lora_modules
    assert (how.checkpointing, how.loss, how.attention) == ("block", "chunked", "flash-2")
    assert job.optimizer == "adamw-8bit"


def test_training_of_everything_has_no_adapters_whatever_rank_is_named() -> None:
    how = reading(extra="finetuning=full;lora_rank=8;recompute=none").configuration
    assert (how.lora_rank, how.checkpointing) == (0, "none")


def test_a_rewrite_that_is_stated_wins_over_words() -> None:
    how = reading(extra="recompute=full", rewrite="checkpointing=none").configuration
    assert how.checkpointing == "none"


def test_serving_rows_are_not_read_as_training() -> None:
    row = completed(ROW | {"task": "infer", "extra": "recompute=full;memory_kind=allocated"})
    assert "rewrite" not in row
    assert "memory_kind" not in row


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("Llama-2 7B (7B model)", "hf:llama-2-7b"),
        ("qwen-14b-chat (2*A100)", "hf:qwen-14b"),
        ("qwen1half-7b-chat-awq", "hf:qwen1.5-7b"),
        ("OpenBuddy/openbuddy-llama2-70b-v10.1-bf16", "hf:llama-2-70b"),
        ("baichuan-inc/Baichuan2-13B-Chat-4bits", "hf:baichuan2-13b"),
        ("ibm/PowerLM-3b", "hf:powerlm-3b"),
    ],
)
def test_names_with_sizes_and_copies_of_a_hub(name: str, entry: str) -> None:
    assert resolve_model(parse_row(ROW | {"model": name})).entry == entry


@pytest.mark.parametrize("name", ["Llama-2 7B (70B model)", "Nobody (7B model)"])
def test_a_size_in_brackets_that_is_not_the_models_is_refused(name: str) -> None:
    with pytest.raises((UnresolvedRowError, PacelineError)):
        resolve_model(parse_row(ROW | {"model": name}))


def test_a_model_that_nobody_knows_is_built_from_its_stated_sizes() -> None:
    job = reading(
        model="our own", params_m="7242",
        extra="hidden=4096;layers=32;heads=32;kv_heads=8;ffn=14336;vocab=32000",
    )  # fmt: skip
    assert job.entry.startswith("transformer:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336")
    assert "gated=1" in job.entry
    assert "tied=0" in job.entry


def test_stated_experts_and_an_encoder_beside_the_decoder_are_built_too() -> None:
    """Mixtral's sizes make 46.7 billion parameters; what T5 writes has no stated length."""
    sizes = "hidden=4096;layers=32;heads=32;kv_heads=8;vocab=32000"
    mixture = reading(
        model="our own", params_m="46703", extra=f"{sizes};experts=8;top_k=2;ffn=14336"
    )
    assert mixture.entry.endswith("gated=1,norm=rms,bias=0,tied=0,experts=8,top_k=2")
    double = reading(model="our t5", extra=f"{sizes};finetuning=full", seq_len="512")
    assert double.entry.startswith("hf:t5,d_model=4096,num_layers=32,num_decoder_layers=32")
    assert double.configuration.peaks == "lengths"
    assert double.seq == (512 + 114) / 2


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("DeepSeek-V3 proxy (14 layers, 256 experts)", "hf:deepseek-v3,num_hidden_layers=14"),
        ("Mixtral-8x7B, 12 layers", "hf:mixtral-8x7b,num_hidden_layers=12"),
    ],
)
def test_a_known_model_of_so_many_layers_has_as_many(name: str, entry: str) -> None:
    assert resolve_model(parse_row(ROW | {"model": name})).entry == entry


def test_a_model_known_by_its_numbers_has_as_many_layers_too() -> None:
    found = resolve_model(parse_row(ROW | {"model": "CodeLlama-13b (12 layers)"})).entry
    assert found.startswith("transformer:layers=12,hidden=5120")


def test_what_trainers_do_by_default_is_taken_where_a_row_says_how_it_was_tuned() -> None:
    described = reading(extra="finetuning=full").configuration
    assert (described.training_format, described.loss) == ("pure", "wide")
    assert reading(extra="finetuning=full;cross_entropy=fused").configuration.loss == "fused-wide"
    assert reading(extra="kind=real").configuration.loss == "plain"


@pytest.mark.parametrize(
    ("release", "batch", "plain", "fused"),
    [
        ("4.45.2", "8", "shifted", "fused-shifted"),
        ("4.48.1", "8", "wide-shifted", "fused-wide-shifted"),
        ("4.48.1", "1", "shifted", "fused-shifted"),
        ("4.50.0", "8", "wide", "fused-wide"),
        ("5.13.1", "8", "wide", "fused-wide"),
    ],
)
def test_a_loss_is_what_its_release_makes_of_it(
    release: str, batch: str, plain: str, fused: str
) -> None:
    framework = f"HF Trainer, torch 2.4.1, transformers {release}"
    told = [
        reading(
            framework=framework, batch_per_gpu=batch, global_batch="",
            extra=f"finetuning=full;cross_entropy={word}",
        ).configuration.loss
        for word in ("plain", "fused")
    ]  # fmt: skip
    assert told == [plain, fused]


def test_adapters_of_trainers_read_a_copy_unless_a_kernel_of_their_own_does() -> None:
    tuned = "finetuning=lora;lora_rank=16;lora_targets=q_proj"
    assert reading(extra=tuned).configuration.adapter_inputs == "dropped"
    assert reading(extra=f"{tuned};fused_lora=yes").configuration.adapter_inputs == "shared"
    assert reading(extra=f"{tuned};lora_dropout=0").configuration.adapter_inputs == "cast"


def test_targets_that_nobody_knows_put_adapters_on_every_layer() -> None:
    how = reading(extra="method=oft;lora_targets=norm_k+norm_q").configuration
    assert (how.lora_rank, how.lora_modules) == (8, ())


def test_methods_are_told_apart_by_what_they_add() -> None:
    """As huggingface/peft writes them: LoKr makes whole matrices, LN tuning adds nothing."""
    kinds = {"lora": "lora", "dora": "dora", "loha": "loha", "lokr": "loha", "fourierft": "loha"}
    assert {
        method: reading(extra=f"method={method};lora_rank=8").configuration.lora_kind
        for method in kinds
    } == kinds
    how = reading(extra="method=ln_tuning;lora_targets=input_layernorm").configuration
    assert (how.lora_rank, how.frozen) == (0, ("except:*norm*",))
    how = reading(extra="method=trainable_tokens;lora_targets=model.embed_tokens").configuration
    assert (how.lora_rank, how.frozen) == (0, ("except:*embed*",))


def test_encoders_guess_masked_words_in_the_format_of_their_logits() -> None:
    """Autocast has FP32 weights, and widens what cross-entropy reads by itself."""
    row = {
        "model": "BERT-large uncased", "framework": "PyTorch 1.13 + transformers",
        "compiler_flags": "pretraining; recompute none", "seq_len": "512",
        "extra": "finetuning=pretraining;recompute=none",
    }  # fmt: skip
    assert resolve_model(parse_row(ROW | row)).entry == "hf:bert-large"
    for precision, expected in (("bf16", "pure"), ("amp fp16", "autocast")):
        how = reading(**row, precision=precision).configuration
        assert (how.loss, how.training_format) == ("plain", expected)
    assert reading(extra="finetuning=full", framework="transformers").configuration.loss == "wide"


def test_wrappers_that_keep_masters_hand_fp32_to_the_loss() -> None:
    for framework, expected in (("PyTorch 1.8", "wide"), ("PaddlePaddle 2.5.1", "plain")):
        row = {"framework": framework, "precision": "fp16 (fp32 master)"}
        assert reading(**row, extra="finetuning=pretraining").configuration.loss == expected


def test_layers_over_devices_are_stages_and_zero_2_is_no_zero_1() -> None:
    assert stated_degrees("layers split over 4 GPUs (device_map)").pp == 4
    assert [sharding_of(f"DeepSpeed zero{n}") for n in (1, 2, 3)] == ["zero1", "zero2", "zero3"]


def test_deepspeed_gathers_gradients_in_buffers_and_keeps_masters() -> None:
    """DeepSpeed's ``reduce_bucket_size`` is 5e8 elements; Lightning's 2e8, twice with overlap."""
    tuned = {"extra": "finetuning=lora;lora_rank=16", "parallelism": "DeepSpeed ZeRO-2"}
    alone = reading(framework="DeepSpeed (train.py)", **tuned).configuration
    beside = reading(framework="Lightning + DeepSpeed", **tuned).configuration
    through = reading(framework="HF Trainer + DeepSpeed", **tuned).configuration
    buffers = [one.gradient_buffers for one in (alone, beside, through)]
    assert buffers == [500_000_000, 400_000_000, 0]
    assert alone.training_format == beside.training_format == "joined-gradients"


@pytest.mark.parametrize(
    ("framework", "precision", "kept", "loss"),
    [
        ("ColossalAI (ColossalChat)", "bf16 or fp16 mixed", "half-gradients", "wide"),
        ("PyTorch Lightning, colossalai (chunked ZeRO-3)", "fp16 mixed", "half-gradients", "plain"),
        ("PyTorch Lightning, deepspeed (zero3)", "fp16 mixed", "joined-gradients", "plain"),
        ("LitGPT (PyTorch)", "bf16", "pure", "wide"),
        ("LitGPT (PyTorch)", "bf16-mixed", "autocast", "wide"),
    ],
)
def test_mixed_precision_is_what_its_trainer_makes_of_it(
    framework: str, precision: str, kept: str, loss: str
) -> None:
    said = {"framework": framework, "precision": precision}
    how = reading(**said, extra="finetuning=full;cross_entropy=plain").configuration
    assert (how.training_format, how.loss) == (kept, loss)


def test_a_base_that_is_published_in_four_bits_stays_so_beside_adapters() -> None:
    said = {"model": "Baichuan2-7B-Chat-4bits", "extra": "finetuning=lora"}
    assert reading(**said).configuration.frozen_weights == "int4"
    whole = reading(**said | {"extra": "finetuning=full"}).configuration
    assert whole.frozen_weights == "same"


def test_a_figure_of_the_last_rank_is_read_as_such() -> None:
    said = ROW | {"extra": "memory_kind=allocated (max_memory_allocated of the last rank)"}
    assert completed(said)["memory_rank"] == "last"
    assert "memory_rank" not in completed(ROW | {"extra": "memory_kind=allocated"})


@pytest.mark.parametrize(
    ("framework", "kind"), [("SimpleTuner (diffusers, PyTorch)", "allocated"), ("diffusers", None)]
)
def test_what_a_trainer_reports_is_what_its_report_counts(framework: str, kind: str) -> None:
    said = {"framework": framework, "extra": "memory_kind=peak_reported_by_trainer;recompute=none"}
    assert completed(ROW | said).get("memory_kind") == kind
    assert completed(ROW | said | {"extra": "memory_kind=driver"})["memory_kind"] == "driver"


def test_megatrons_own_fusion_of_the_loss_writes_new_tensors() -> None:
    said = {"framework": "Megatron-LM", "extra": "finetuning=full;cross_entropy=fused native"}
    assert reading(**said).configuration.loss == "compiled-wide"


def test_a_vision_transformer_of_so_many_tokens_has_a_side() -> None:
    said = {"model": "ViT-g/14 DINOv2 (timm)", "framework": "PyTorch + timm", "seq_len": "257"}
    job = reading(**said, extra="finetuning=full")
    assert (job.image_size, job.configuration.attention) == (224, "flash-2")


def test_optimizers_of_low_rank_update_in_backward() -> None:
    said = "optimizer=GaLoreAdamW8bit per layer, rank 1024, update fused into backward"
    job = reading(extra=f"finetuning=pretraining;{said}", precision="bf16 weights", framework="x")
    assert job.optimizer == "galore-8bit"
    assert job.configuration.update == "in-backward"
    assert job.configuration.training_format == "pure"


def test_narrow_weights_that_are_trained_are_taken_in_16_bits() -> None:
    how = reading(extra="finetuning=pretraining", precision="int8 weights, bf16 compute")
    assert (how.configuration.training_format, how.configuration.frozen_weights) == ("pure", "same")


def test_memory_by_length_without_a_batch_is_that_of_one_sequence() -> None:
    without = {"batch_per_gpu": "", "seq_len": "2048"}
    assert reading(extra="memory_kind=peak;method=full", **without).batch_per_gpu == 1
    assert reading(extra="memory_kind=peak;method=full", batch_per_gpu="4").batch_per_gpu == 4


@pytest.mark.parametrize(
    ("framework", "kernels"),
    [("HF Trainer", "flash-2"), ("TRL SFTTrainer", "flash-2"), ("transformers 4.2", "eager"),
     ("PyTorch 1.13 + transformers", "eager")],
)  # fmt: skip
def test_transformers_takes_fused_attention_by_itself_since_4_36(
    framework: str, kernels: str
) -> None:
    assert reading(framework=framework, extra="method=full").configuration.attention == kernels


def test_last_layers_are_trained_where_a_row_says_so() -> None:
    said = {"extra": "finetuning=freeze;layers=32", "compiler_flags": "freeze (last 2 layers)"}
    how = reading(**said).configuration
    assert how.frozen == ("except:*layers.30", "except:*layers.31")
    assert how.lora_rank == 0


@pytest.mark.parametrize(
    ("model", "checkpointing", "blocks"),
    [("Chroma", "block", "1/2"), ("SD3", "block", "2/4"), ("Qwen Image", "block", "1"),
     ("Sana", "none", "1")],
)  # fmt: skip
def test_networks_read_intervals_of_checkpoints_in_their_own_way(
    model: str, checkpointing: str, blocks: str
) -> None:
    said = {"extra": "checkpoint_mode=seg2-stride4", "framework": "SimpleTuner", "seq_len": ""}
    how = reading(model=model, **said).configuration
    assert (how.checkpointing, how.checkpoint_blocks) == (checkpointing, blocks)


@pytest.mark.parametrize(
    ("said", "peak_seq", "peaks"),
    [
        ("packing=yes;mean_tokens_per_sample=500", None, "derived"),
        ("packing=no (padded);mean_tokens_per_sample=500", 3000, "lengths"),
        ("packing=padding-free;mean_tokens_per_sample=500", 1125, "lengths"),
        ("packing=no;dataset=news (tokens: mean 300, max 9000)", None, "derived"),
        ("packing=no;dataset=news", None, "lengths"),
    ],
)
def test_memory_of_lengths_that_vary_peaks_at_the_longest(
    said: str, peak_seq: int | None, peaks: str
) -> None:
    """Six times a mean: of all four items where they are padded, else of one beside the others."""
    found = reading(extra=f"recompute=full;{said}", seq_len="500")
    assert found.peak_seq == peak_seq
    assert found.configuration.peaks == peaks


@pytest.mark.parametrize(
    ("framework", "said", "row", "training_format"),
    [
        ("TRL SFTTrainer", "quant=bnb 4-bit", {}, "autocast"),
        ("TRL SFTTrainer", "quant=gptq int4", {}, "pure"),
        ("TRL SFTTrainer", "quant=bnb 4-bit", {"parallelism": "FSDP", "n_gpus": "2"}, "pure"),
        ("ms-swift 3", "quant=bnb 4-bit", {}, "pure"),
        ("HF Trainer + trl 0.17", "quant=bnb nf4", {}, "autocast"),
        ("HF Trainer + fms-acceleration", "quant=bnb nf4", {}, "pure"),
    ],
)
def test_peft_widens_what_bitsandbytes_does_not_quantise(
    framework: str, said: str, row: dict[str, str], training_format: str
) -> None:
    extra = f"finetuning=qlora;lora_rank=8;{said}"
    cells = {"framework": framework, "extra": extra, "precision": "bf16"} | row
    assert reading(**cells).configuration.training_format == training_format


@pytest.mark.parametrize(
    ("said", "offload"),
    [("", "activations"), ("recompute=full", "none"), ("recompute=unsloth", "activations")],
)
def test_a_row_that_says_how_it_recomputes_says_what_waits_on_the_host(
    said: str, offload: str
) -> None:
    row = {"framework": "Unsloth", "extra": f"finetuning=lora;lora_rank=8;{said}"}
    assert reading(**row).configuration.checkpointing == "block"
    assert reading(**row).configuration.offload == offload


def test_steps_that_write_answers_or_run_other_models_are_known_roughly() -> None:
    said = {"framework": "HF Trainer", "extra": "finetuning=full;packing=yes"}
    assert reading(**said).configuration.peaks == "derived"
    assert reading(**said, compiler_flags="DPO; zero2").configuration.peaks == "derived"
    assert reading(**said, compiler_flags="distillation").configuration.peaks == "rough"
    unpacked = said | {"extra": "finetuning=full"}
    assert reading(**unpacked).configuration.peaks == "lengths"
    said["extra"] += ";objective=ppo"
    assert reading(**said).configuration.peaks == "rough"


@pytest.mark.parametrize(
    ("said", "objective", "sequences"),
    [
        ({"compiler_flags": "DPO; zero2"}, "dpo", 8),
        ({"framework": "TRL DPOTrainer"}, "dpo", 8),
        ({"compiler_flags": "ORPO"}, "next-token", 8),
        ({"compiler_flags": "KTO"}, "kto", 4),
        ({"compiler_flags": "full fine-tuning"}, "next-token", 4),
    ],
)
def test_objectives_and_their_pairs_are_read(
    said: dict[str, str], objective: str, sequences: int
) -> None:
    cells = {"framework": "HF Trainer", "extra": "finetuning=full", "batch_per_gpu": "4"} | said
    found = reading(**cells)
    assert found.configuration.objective == objective
    assert found.batch_per_gpu == sequences


def test_deepspeed_keeps_fp32_masters_wherever_a_row_names_it() -> None:
    said = {"framework": "LLaMA-Factory", "extra": "finetuning=full;recompute=full"}
    alone = reading(**said, n_gpus="8", parallelism="DDP")
    shared = reading(**said, n_gpus="8", parallelism="DeepSpeed ZeRO-3")
    assert alone.configuration.training_format == "autocast"
    assert shared.configuration.training_format == "joined-gradients"


def test_named_texts_are_no_longer_than_their_longest() -> None:
    said = {"extra": "finetuning=lora;packing=no;dataset=advertise-gen-zh#20000", "seq_len": "2048"}
    assert reading(**said).peak_seq == 238
    assert reading(**said | {"seq_len": "128"}).peak_seq is None


def test_of_more_texts_the_longest_is_longer_and_beyond_their_mean() -> None:
    found = [longest_seen(300.0, 150.0, count) for count in (10, 100, 10_000)]
    assert 300.0 < found[0] < found[1] < found[2]
    assert longest_seen(300.0, 1.0) == pytest.approx(300.0, rel=0.02)


@pytest.mark.parametrize(
    ("dataset", "longest"), [("jd-sentiment-zh", 1543), ("dureader-robust-zh", 1416)]
)
def test_no_run_meets_a_longer_text_than_a_set_has(dataset: str, longest: int) -> None:
    """The 4,039 tokens of one remark are an outlier; no question of DuReader has 1,505."""
    said = {"extra": f"finetuning=lora;packing=no;dataset={dataset}", "seq_len": "2048"}
    assert reading(**said).peak_seq == longest


def test_every_set_of_texts_has_a_longest_beyond_its_mean() -> None:
    for line in read_table("text_lengths.csv"):
        assert re.compile(line["name"])
        assert float(line["std_tokens"] or 1) > 0
        assert float(line["longest_tokens"]) > float(line["mean_tokens"] or 0)
