"""Weights in 8 and 4 bits: which they are, counted by hand, and what widening them costs."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, monomials
from paceline.model.graph.program import Accesses, Program
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.quantisation import quantised

INT8, INT4 = 1.03125, 0.515625
#: Matrices of all layers, by hand: GPT-2 (Radford et al. 2019), Llama 3 8B (arXiv:2407.21783).
DENSE = {
    "gpt2": 12 * (768 * 2304 + 768 * 768 + 2 * 768 * 3072),
    "llama-3-8b": 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336),
}
WHOLE = {"gpt2": 124_439_808, "llama-3-8b": 8_030_261_248}
LARGEST = 4096 * 14336
EIGHT_BITS = ["int8", "int8-full", "fp8"]


def of_inference(name, index=0, **settings):
    graph = load_workload(name, task="infer").passes[index].graph
    return lower(graph, Configuration(**settings))


def of_training(name, **settings):
    return lower(load_workload(name).passes[0].graph, Configuration(**settings))


def moved(table, at):
    """(bytes read, bytes written) by everything that widens."""
    rows = table.kind == OpKind.DEQUANTIZE
    count = table.count[rows]
    return count @ (table.read_bytes[rows] @ at), count @ (table.write_bytes[rows] @ at)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(
    ("precision", "width"), [("int4", INT4), *((precision, INT8) for precision in EIGHT_BITS)]
)
def test_matrices_of_layers_are_narrow_and_nothing_else(name, precision, width):
    """Embeddings, norms, biases and the head stay in sixteen bits."""
    stored = of_inference(name, precision=precision).parameter_bytes
    assert stored == 2 * (WHOLE[name] - DENSE[name]) + width * DENSE[name]


@pytest.mark.parametrize(
    ("weights", "width"), [("int8", INT8), ("int4", INT4), ("fp8", 1.0), ("nvfp4", 0.5 + 1 / 16)]
)
def test_a_frozen_base_is_narrow_and_its_head_and_adapters_are_not(weights, width):
    one = of_training("llama-3-8b", lora_rank=8, frozen_weights=weights, precision="fp32")
    dense = DENSE["llama-3-8b"]
    assert one.parameter_bytes == 4 * (one.num_parameters - dense) + width * dense


#: Matrices by hand: 32 layers of LLaVA 1.5 7B's language model, 24 of CLIP's tower, and
#: the two between them (`config.json` of both; a convolution of patches is none).
WORDS = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
TOWER = 24 * (4 * 1024 * 1024 + 2 * 1024 * 4096) + 1024 * 4096 + 4096 * 4096


@pytest.mark.parametrize(("weights", "narrow"), [("gptq", WORDS), ("awq", WORDS)])
def test_gptq_and_awq_leave_towers_as_they_are(weights, narrow):
    one = of_training("llava-1.5-7b", lora_rank=8, frozen_weights=weights, precision="fp32")
    assert one.parameter_bytes == 4 * (one.num_parameters - narrow) + 0.51953125 * narrow


def test_bitsandbytes_narrows_towers_too():
    """Its `replace_with_bnb_linear` takes every linear layer but the head."""
    one = of_training("llava-1.5-7b", lora_rank=8, frozen_weights="int4", precision="fp32")
    narrow = WORDS + TOWER
    assert one.parameter_bytes == 4 * (one.num_parameters - narrow) + INT4 * narrow


def test_an_encoder_beside_its_decoder_is_no_tower():
    stored = {
        of_training(
            "whisper-small", lora_rank=8, frozen_weights=weights, precision="fp32"
        ).parameter_bytes
        for weights in ("gptq", "awq", "int4")
    }
    assert max(stored) < 1.02 * min(stored)


def test_weights_that_are_trained_keep_their_format():
    with pytest.raises(InvalidInputError, match="weights that are not trained"):
        of_training("gpt2", frozen_weights="int4")


@pytest.mark.parametrize("name", DENSE)
def test_widening_reads_each_narrow_weight_once_and_writes_it_in_sixteen_bits(name):
    for index in (0, 1):
        costs = of_inference(name, index, precision="int8").costs
        read, written = moved(costs, monomials(3, 50)[0])
        assert read == pytest.approx(INT8 * DENSE[name])
        assert written == pytest.approx(2 * DENSE[name])


def test_a_base_is_widened_to_what_products_read():
    """FP32 products read FP32 weights, and widened ones are as large as they were whole."""
    for precision, width in (("fp32", 4), ("bf16", 2)):
        costs = of_training(
            "gpt2", lora_rank=8, frozen_weights="int8", precision=precision, training_format="pure"
        ).costs
        read, written = moved(costs, monomials(3, 50)[0])
        assert written / read == pytest.approx(width / INT8)


def test_a_loop_in_int8_launches_what_finds_outliers_and_no_engine_does():
    """LLM.int8() takes 15 kernels beside each product; 4 bits and engines take none, FP8 one."""

    def launched(precision, **settings):
        costs = of_inference("llama-3-8b", 1, precision=precision, **settings).costs
        return costs.num_kernels[costs.order].sum()

    plain, served = launched("bf16"), {"compiler": "compiled"}
    num_weights = 32 * 7
    for precision in ("int8", "int8-full"):
        assert launched(precision) - plain == 15 * num_weights
        assert launched(precision, **served) == launched("bf16", **served)
    assert launched("fp8") - plain == num_weights
    assert launched("int4", widens_in_kernels=True) == plain


def test_each_weight_is_widened_right_before_its_product():
    costs = of_inference("llama-3-8b", 1, precision="int4").costs
    kinds = costs.kind[costs.order]
    widened = np.flatnonzero(kinds == OpKind.DEQUANTIZE)
    assert len(widened) == 32 * 7
    assert (kinds[widened + 1] == OpKind.MATMUL).all()


def test_one_widened_weight_is_alive_at_a_time():
    """A decode step holds little but weights: the largest widened one makes the peak."""
    at = monomials(1, 1)[0]
    eager, fused = (
        (of_inference("llama-3-8b", 1, precision="int8", widens_in_kernels=inside).memory.by_owner
         .sum(axis=1) @ at).max()
        for inside in (False, True)
    )  # fmt: skip
    assert eager - fused == pytest.approx(2 * LARGEST, rel=0.01)


def test_no_widened_weight_outlives_its_product():
    graph = load_workload("gpt2", task="infer").passes[1].graph
    whole, narrow = (
        lifetimes(graph, Configuration(precision=precision)) for precision in ("bf16", "int8")
    )
    added = np.arange(len(whole.owner), len(narrow.owner))
    assert len(added) == 12 * 6  # queries, keys, values, output, up, down
    assert (narrow.owner[added] != Owner.PARAMETER).all()
    assert (narrow.death[added] - narrow.birth[added] == 1).all()


@pytest.fixture(scope="module")
def decode():
    return Program.from_graph(load_workload("gpt2", task="infer").passes[1].graph)


def first_matrix(program):
    """The largest parameter that the first product reads."""
    reads = program.reads
    is_weight = program.stores.owner[reads.storage] == Owner.PARAMETER
    is_product = program.ops.kind[reads.op] == OpKind.MATMUL
    op = reads.op[is_weight & is_product].min()
    storages = reads.storage[is_weight & (reads.op == op)]
    return storages[program.stores.elements[storages, 0].argmax()]


def stored_bytes(program, storage):
    return quantised(program, "int8", is_fused=True).stores.num_bytes()[storage, 0]


def test_a_matrix_that_something_else_reads_too_keeps_its_format(decode):
    matrix = first_matrix(decode)
    assert stored_bytes(decode, matrix) == INT8 * decode.stores.elements[matrix, 0]
    norm = int(np.flatnonzero(decode.ops.kind == OpKind.NORM)[0])
    reads = decode.reads
    more = Accesses(
        op=np.append(reads.op, norm),
        storage=np.append(reads.storage, matrix),
        elements=np.vstack((reads.elements, decode.stores.elements[matrix])),
    )
    whole = decode.stores.num_bytes()[matrix, 0]
    assert stored_bytes(replace(decode, reads=more), matrix) == whole


def test_a_matrix_that_no_product_reads_keeps_its_format(decode):
    matrix = first_matrix(decode)
    is_reader = decode.reads.storage == matrix
    unread = replace(decode, reads=decode.reads.kept(~is_reader))
    assert stored_bytes(unread, matrix) == decode.stores.num_bytes()[matrix, 0]


def test_products_do_the_same_work_with_narrow_weights():
    plain, narrow = (of_inference("gpt2", precision=p).costs for p in ("bf16", "int4"))
    at = monomials(2, 64)[0]
    assert narrow.count @ (narrow.flop @ at) == pytest.approx(plain.count @ (plain.flop @ at))


def frozen_peak(layers, products, checkpointing="none"):
    """Bytes of activations at the end of a forward pass beside a frozen base in 8 bits."""
    vocab = 512 if checkpointing == "none" else 8192  # Peaks are at the loss, whatever is kept.
    sizes = f"layers={layers},hidden=256,heads=4,ffn=1024,vocab={vocab},gated=0,norm=layer,bias=0"
    how = Configuration(
        precision="bf16", training_format="pure", lora_rank=2, frozen_weights="int8",
        frozen_products=products, results="dropped", checkpointing=checkpointing,
    )  # fmt: skip
    graph = load_workload(f"transformer:{sizes}", task="train").passes[0].graph
    lived = lifetimes(graph, how)
    size = lived.bytes_at(4, 128) * (lived.owner == Owner.ACTIVATION)
    births = np.unique(lived.birth)
    return max(size[(lived.birth <= at) & (at <= lived.death)].sum() for at in births)


def more_by_layer(products, checkpointing="none"):
    return [
        (frozen_peak(12, how, checkpointing) - frozen_peak(4, how, checkpointing)) / 8
        for how in products
    ]


def test_products_keep_of_frozen_weights_what_real_pytorch_keeps():
    """Widened copies of a layer's matrices; what its six products read, cast to 8 bits."""
    script = Path(__file__).parent / "quantised_products.py"
    printed = subprocess.check_output([sys.executable, str(script), "400", "512", "300"], text=True)
    of_weight, of_input = map(float, printed.split())
    nothing, kept, cast = more_by_layer(("widened", "kept", "cast"))
    assert kept - nothing == pytest.approx(of_weight * 12 * 256**2, rel=1e-3)
    entering = 4 * 128 * (5 * 256 + 1024)
    assert cast - nothing == pytest.approx(of_input * entering, rel=2e-3)


def test_a_loop_that_holds_its_loss_has_the_inputs_of_two_steps():
    """What six products read of three norms and an activation; adapters keep it once anyway."""
    script = Path(__file__).parent / "held_inputs.py"
    printed = subprocess.check_output([sys.executable, str(script)], text=True)
    of_holder, of_others = map(float, printed.split()[:2])
    nothing, held = more_by_layer(("widened", "held"))
    entering = 2 * 4 * 128 * (3 * 256 + 1024)
    assert held - nothing == pytest.approx((of_holder - of_others) * entering, rel=1e-6)


def test_checkpoints_that_are_not_reentrant_leave_attributes_of_the_graph():
    """A block computed again keeps all that its products read, and a reentrant one nothing."""
    script = Path(__file__).parent / "held_inputs.py"
    printed = subprocess.check_output([sys.executable, str(script)], text=True)
    of_hooks, of_reentrant = map(float, printed.split()[2:])
    nothing, attached = more_by_layer(("widened", "attached"), "block")
    entering = 2 * 4 * 128 * (3 * 256 + 1024)
    assert attached - nothing == pytest.approx((of_hooks - of_reentrant) * entering, rel=1e-6)


def of_casts(table, at):
    """Bytes that casts read and write."""
    rows = table.kind == OpKind.CAST
    return float(table.count[rows] @ ((table.read_bytes + table.write_bytes)[rows] @ at))


def test_training_in_eight_bits_casts_what_enters_products_and_the_gradients_that_leave_them():
    """Four bytes a number of GPT-2's layers, by hand; what the head reads stays in sixteen bits."""
    tokens, width = 3 * 64, 768
    enters = 12 * (width + width + width + 4 * width)
    leaves = 12 * (3 * width + width + 4 * width + width)
    at = monomials(3, 64)[0]
    eight, sixteen = (
        of_training("gpt2", precision=p, training_format="pure") for p in ("fp8", "bf16")
    )
    added = of_casts(eight.costs, at) - of_casts(sixteen.costs, at)
    assert added == 4 * tokens * (enters + leaves)
    peaks = [(one.memory.by_owner.sum(axis=1) @ at).max() for one in (eight, sixteen)]
    assert peaks[0] == peaks[1]


def test_engines_cast_within_their_products():
    at = monomials(1, 64)[0]
    assert of_casts(of_inference("gpt2", precision="fp8").costs, at) == of_casts(
        of_inference("gpt2", precision="bf16").costs, at
    )


@pytest.mark.parametrize(
    ("name", "file_bytes"), [("llama-3-8b", 4.92e9), ("hf:llama-3.1-70b", 42.52e9)]
)
def test_files_of_llamacpp_are_as_large_as_published(name, file_bytes):
    """Q4_K_M of Llama 3.1 8B and 70B, as their pages list them (recalled)."""
    one = of_inference(name, precision="int4", engine_kernels="portable", compiler="compiled")
    assert one.parameter_bytes == pytest.approx(file_bytes, rel=0.02)


def test_mxfp4_narrows_the_experts_of_a_mixture_alone():
    """The files of gpt-oss-20b on Hugging Face take 13.76 GB (recalled); dense models lack experts.

    Attention of mixtures keeps its 16 bits, so that four bits in integers take less.
    """
    own = of_inference("hf:gpt-oss-20b", precision="mxfp4", compiler="compiled", is_served=True)
    assert own.parameter_bytes == pytest.approx(13.76e9, rel=0.005)
    integers = of_inference("hf:gpt-oss-20b", precision="int4", compiler="compiled", is_served=True)
    assert integers.parameter_bytes < 0.95 * own.parameter_bytes
    dense, wide = (of_inference("gpt2", precision=p).parameter_bytes for p in ("mxfp4", "bf16"))
    assert dense < 0.75 * wide
