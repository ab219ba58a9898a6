"""Hand-made passes and devices for the tests of predict."""

import numpy as np

from paceline.catalog.architectures import generation_of, shipped_generations
from paceline.catalog.entities import Device
from paceline.dtypes import DType
from paceline.model.graph.costs import Configuration, CostTable, LoweredPass, MemoryTable
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, OpKind, Owner, Phase


def device(name="D", **changes):
    facts = {
        "name": name,
        "family": name,
        "is_default_variant": True,
        "vendor": "NVIDIA",
        "architecture": "Ampere",
        "kind": "gpu",
        "device_class": "datacenter",
        "compute_capability": "8.0",
        "year": 2020,
        "num_sms": 108,
        "boost_clock_hz": 1.41e9,
        "peak_flop_per_s": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
        "memory_bytes": 80e9,
        "memory_type": "HBM2e",
        "memory_bytes_per_s": 2.0e12,
        "l2_bytes": 40e6,
        "tdp_w": 400.0,
        "pcie_bytes_per_s": 32e9,
        "fabric": None,
        "fabric_bytes_per_s": None,
        "form_factor": "SXM4",
        "cooling": "passive",
        "price_usd": None,
        "price_on": None,
        "measured_bf16_flop_per_s": None,
        "sources": (),
    }
    facts |= changes
    known = generation_of(shipped_generations(), facts["architecture"], facts["compute_capability"])
    return Device(**({"generation": known} | facts))


def matmul(m, n, k, *, count=1, kernels=1.0, dtype=DType.BF16, phase=Phase.FORWARD):
    """A row: (batch x m, k) by (k, n), m rows per batch item."""
    size = 2 if dtype != DType.FP32 else 4
    return {
        "kind": OpKind.MATMUL,
        "dtype": dtype,
        "count": count,
        "kernels": kernels,
        "phase": phase,
        "dims": {0: (1, 0), 1: (m, 1), 2: (n, 0), 3: (k, 0)},
        "flop": 2 * m * n * k,
        "read": size * m * k,
        "weight": size * k * n,
        "write": size * m * n,
    }


def stream(elements, *, count=1, kernels=1.0, phase=Phase.FORWARD, kind=OpKind.ELEMENTWISE):
    """A row that reads and writes ``elements`` two-byte numbers per batch item."""
    return {
        "kind": kind,
        "dtype": DType.BF16,
        "count": count,
        "kernels": kernels,
        "phase": phase,
        "dims": {0: (elements // 64, 1), 1: (64, 0), 2: (1, 0)},
        "flop": elements,
        "read": 2 * elements,
        "weight": 0,
        "write": 2 * elements,
    }


def lowered(*rows, configuration=None, input_bytes=0.0):
    """A pass whose rows run one after another, each as often as its count."""
    num = len(rows)

    def linear(key, constant=None):
        values = np.zeros((num, NUM_MONOMIALS))
        values[:, 1] = [row[key] for row in rows]
        if constant:
            values[:, 0] = [row[constant] for row in rows]
        return values

    dims = np.zeros((num, NUM_DIMS, NUM_MONOMIALS))
    for index, row in enumerate(rows):
        for column, (value, power) in row["dims"].items():
            dims[index, column, power] = value
    order = np.repeat(np.arange(num), [row["count"] for row in rows]).astype(np.int32)
    weight = np.zeros((num, NUM_MONOMIALS))
    weight[:, 0] = [row["weight"] for row in rows]
    costs = CostTable(
        kind=np.array([row["kind"] for row in rows], np.int16),
        variant=np.zeros(num, np.int16),
        phase=np.array([row["phase"] for row in rows], np.int8),
        matmul_dtype=np.array([row["dtype"] for row in rows], np.int8),
        count=np.array([row["count"] for row in rows], np.float64),
        num_kernels=np.array([row["kernels"] for row in rows], np.float64),
        flop=linear("flop"),
        read_bytes=linear("read", "weight"),
        write_bytes=linear("write"),
        dims=dims,
        weight_bytes=weight,
        order=order,
        module=np.zeros(len(order), np.int32),
        modules=("",),
    )
    by_owner = np.zeros((1, len(Owner), NUM_MONOMIALS))
    by_owner[0, Owner.INPUT, 1] = input_bytes
    memory = MemoryTable(
        by_owner=by_owner,
        op=np.zeros(1, np.int32),
        weight_copies=np.zeros((1, NUM_MONOMIALS)),
        largest_bytes=np.zeros((1, NUM_MONOMIALS)),
        num_allocations=np.ones(1),
    )
    return LoweredPass(
        name="hand-made",
        configuration=configuration or Configuration(),
        costs=costs,
        memory=memory,
        num_parameters=1,
        num_trainable_parameters=1,
        gradient_bytes=2.0,
        parameter_bytes=4.0,
        optimizer_state_bytes=0.0,
        gradient_ready=np.zeros((0, 2)),
    )
