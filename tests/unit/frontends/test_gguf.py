"""GGUF files: the model that a header describes is the base model, and damage is one sentence."""

import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from gguf_here import BLOCKS, MXFP4, decoder, header, small, text
from keras_here import module
from mutated import damaged_bytes

from paceline.errors import InvalidInputError
from paceline.model.reading.load import load_workload

#: Sizes as the configs of the releases state them.
LLAMA = {"hidden": 2048, "layers": 16, "heads": 32, "shared": 8, "inner": 8192, "vocab": 128256}
QWEN2 = {"hidden": 896, "layers": 24, "heads": 14, "shared": 2, "inner": 4864, "vocab": 151936}
QWEN3 = {"hidden": 1024, "layers": 28, "heads": 16, "shared": 8, "inner": 3072, "vocab": 151936}
RELEASES = {
    "llama-3.2-1b": decoder("llama", **LLAMA),
    "qwen2.5-0.5b": decoder("qwen2", **QWEN2, marks="biases"),
    "qwen3-0.6b": decoder("qwen3", **QWEN3, head=128, marks="norms"),
}
SMALL = {"hidden": 256, "layers": 2, "heads": 4, "shared": 2, "inner": 512, "vocab": 1000}


def read(path, content):
    path.write_bytes(content)
    return module("gguf_header").read_header(str(path))


def refusal(path, content):
    with pytest.raises(module("torch_entries.request_errors").RequestError) as caught:
        module("gguf_config").settings_of(read(path, content))
    assert caught.value.kind == "bad-gguf"
    return str(caught.value)


@pytest.mark.parametrize("name", RELEASES)
def test_a_header_is_the_model_that_it_was_made_of(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path, request = tmp_path / "model.gguf", {"task": "infer"}
    path.write_bytes(RELEASES[name])
    found = module("gguf_worker").subject({**request, "entry": str(path)})
    base = module("torch_transformers.families").hf_subject(name, request)
    shapes = [
        {key: one.shape for key, one in subject.model.named_parameters()}
        for subject in (found, base)
    ]
    assert shapes[0] == shapes[1]
    held = module("gguf_config").num_parameters(read(path, RELEASES[name]))
    assert held == sum(one.numel() for one in base.model.parameters())


def test_a_file_of_the_real_writer_is_read(monkeypatch):
    """Written by the package ``gguf``: ``tests/unit/model/data/gguf/write.py``."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = Path(__file__).parents[1] / "model" / "data" / "gguf" / "written.gguf"
    found = module("gguf_worker").subject({"task": "infer", "entry": str(path)})
    block = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    held = sum(one.numel() for one in found.model.parameters())
    assert held == 2 * 96 * 64 + 64 + 2 * block
    assert type(found.model).__name__ == "LlamaForCausalLM"
    assert "q8_0" in found.taken.lower()


@pytest.mark.parametrize("class_name", BLOCKS)
def test_an_architecture_is_a_class_with_as_many_parameters(class_name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "model.gguf"
    path.write_bytes(small(class_name))
    model = module("gguf_worker").subject({"entry": str(path), "task": "infer"}).model
    assert type(model).__name__ == class_name


def test_an_answer_says_how_the_weights_lie(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(decoder("llama", **SMALL))
    found = load_workload(str(path), task="infer", seq=64, python=sys.executable)
    assert "weights are Q4_K and Q6_K" in found.title
    assert "nearest to int4" in found.title
    assert found.released == ("int4",)
    assert found.generates


def test_weights_in_mxfp4_are_served_in_mxfp4(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "model.gguf"
    path.write_bytes(small("GptOssForCausalLM", experts=MXFP4))
    found = module("gguf_worker").subject({"entry": str(path), "task": "infer"})
    assert found.released == "mxfp4"
    held = read(path, path.read_bytes()).tensors
    experts = [one for name, one in held.items() if name.endswith("_exps.weight")]
    size = module("gguf_header").tensor_bytes
    bits = [8 * size(one) / module("gguf_config")._elements(one) for one in experts]
    assert set(bits) == {4.25}


#: Elements and bytes of a block, as `GGML_QUANT_SIZES` of llama.cpp states them: scales, minima and
#: high bits apart (gguf-py/gguf/constants.py, ef035f7); NVFP4 and Q1_0 as in its later versions.
PARTS = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "F64": (1, 8), "I8": (1, 1), "I16": (1, 2),
    "I32": (1, 4), "I64": (1, 8), "Q4_0": (32, 2 + 16), "Q4_1": (32, 2 + 2 + 16),
    "Q5_0": (32, 2 + 4 + 16), "Q5_1": (32, 2 + 2 + 4 + 16), "Q8_0": (32, 2 + 32),
    "Q8_1": (32, 2 + 2 + 32), "Q2_K": (256, 2 + 2 + 16 + 64), "Q3_K": (256, 2 + 64 + 32 + 12),
    "Q4_K": (256, 2 + 2 + 128 + 12), "Q5_K": (256, 2 + 2 + 128 + 32 + 12),
    "Q6_K": (256, 2 + 128 + 64 + 16), "Q8_K": (256, 4 + 256 + 32), "IQ2_XXS": (256, 2 + 64),
    "IQ2_XS": (256, 2 + 64 + 8), "IQ3_XXS": (256, 2 + 64 + 32), "IQ1_S": (256, 2 + 32 + 16),
    "IQ4_NL": (32, 2 + 16), "IQ3_S": (256, 2 + 64 + 32 + 8 + 4), "IQ2_S": (256, 2 + 64 + 16),
    "IQ4_XS": (256, 2 + 2 + 128 + 4), "IQ1_M": (256, 32 + 16 + 8), "TQ1_0": (256, 2 + 4 * 13),
    "TQ2_0": (256, 2 + 64), "MXFP4": (32, 1 + 16), "NVFP4": (64, 4 + 32), "Q1_0": (128, 2 + 16),
}  # fmt: skip


def test_blocks_are_as_large_as_llama_cpp_writes_them():
    types = module("gguf_header").TYPES.values()
    assert {name: (elements, size) for name, elements, size in types} == PARTS


def test_bytes_are_those_of_the_blocks_of_a_type(tmp_path):
    header_ = read(tmp_path / "m", decoder("llama", **SMALL))
    size = module("gguf_header").tensor_bytes
    assert size(header_.tensors["blk.0.attn_q.weight"]) == 256 * 256 // 256 * 144
    assert size(header_.tensors["token_embd.weight"]) == 256 * 1000 // 256 * 210
    assert size(header_.tensors["output_norm.weight"]) == 256 * 4


def test_a_file_whose_tensors_are_of_another_model_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(decoder("qwen2", **SMALL))
    with pytest.raises(InvalidInputError, match=r"tensors hold .* keys describe"):
        load_workload(str(path), task="infer", python=sys.executable)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ends too early"),
        (b"PK\x03\x04" * 9, "does not begin with `GGUF`"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 1), "claims 1 keys"),
        (b"GGUF" + struct.pack("<IQqI", 3, 0, 1, 0), "ends too early"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**40), "ends too early"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIq", 9, 0, -1),
         "claims an array"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 9)
         + struct.pack("<IQ", 9, 1) * 9,
         "unknown type 9"),
        (header({}, {"t": ((2**40, 2**40), 0)}), "extents"),
        (header({}, {"t": ((0, 4), 0)}), "extents"),
        (header({}, {"t": ((100,), 12)}), "extents"),
        (header({}, {"t": ((4,), 4)}), "unknown type 4"),
        (header({}, {"t": ((1,) * 5, 0)}), "5 dims"),
        (header({"general.architecture": "mamba"}, {}), "architecture `mamba`"),
        (header({"general.architecture": "llama"}, {}), "does not state `llama.embedding_length`"),
        (decoder("llama", **{**SMALL, "heads": 5}), "do not divide"),
        (decoder("llama", **SMALL)[:-1], "ends too early"),
        (decoder("llama", **SMALL).replace(struct.pack("<II", 4, 512), struct.pack("<II", 4, 0)),
         "feed_forward_length` is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(content, said, tmp_path):
    assert said in refusal(tmp_path / "m", content)


def test_two_thousand_damaged_headers_end_in_one_sentence_or_a_model(tmp_path):
    chance, whole = random.Random(134), decoder("qwen2", **SMALL, marks="biases")
    said = []
    tracemalloc.start()
    for _ in range(2_000):
        try:
            found = read(tmp_path / "m", damaged_bytes(whole, chance))
            settings = module("gguf_config").settings_of(found)
            assert module("gguf_config").num_parameters(found) > 0
            assert 1 <= settings["num_hidden_layers"] <= 1_024
        except module("torch_entries.request_errors").RequestError as error:
            said.append(str(error))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1_000 < len(said) < 2_000
    assert all(0 < len(one) < 300 for one in said)
    assert peak < 50_000_000
