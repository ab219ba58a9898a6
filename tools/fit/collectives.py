"""Fit the coefficients of collectives to published one-node measurements.

    PYTHONPATH=tools python -m fit.collectives ../shared/truth/ops > collectives.csv

Measured kinds are fitted to aiconfigurator's NCCL tables; the others are written down from the
engineering rules in `RULES`, each with its reason. Links between nodes are never fitted: they
follow `network_rows` from their specification.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from paceline.parallelism.collectives.links import KNOT_S, MEASURED_RANKS, Collective

Row = dict[str, Any]
#: Name in NCCL's tables, and the share of the message that crosses a link of n ranks.
COLLECTIVES: dict[Collective, tuple[str, Callable[[int], float]]] = {
    "all_reduce": ("all_reduce", lambda n: 2 * (n - 1) / n),
    "all_gather": ("all_gather", lambda n: (n - 1) / n),
    "reduce_scatter": ("reduce_scatter", lambda n: (n - 1) / n),
    "all_to_all": ("alltoall", lambda n: (n - 1) / n),
}
LINK_BYTES_PER_S = {
    "a100_sxm": 300e9, "h100_sxm": 450e9, "h200_sxm": 450e9, "b200_sxm": 900e9, "b300_sxm": 900e9,
    "gb200": 900e9, "gb300": 900e9, "rtx_pro_6000_server": 63e9, "l40s": 31e9,
}  # fmt: skip
KINDS = {
    "nvlink3": ("a100_sxm",),
    "nvlink4": ("h100_sxm", "h200_sxm"),
    "nvlink5": ("b200_sxm", "b300_sxm", "gb200", "gb300"),
    "pcie": ("rtx_pro_6000_server",),
}
PEAKS = {
    "nvlink3": ("nvlink", 300e9), "nvlink4": ("nvlink", 450e9), "nvlink5": ("nvlink", 900e9),
    "efa-p5": ("efa", 400e9), "efa-p6": ("efa", 800e9),
    "roce-gaudi2": ("roce", 300e9), "roce-gaudi3": ("roce", 600e9),
}  # fmt: skip
SOURCE = "fitted to ai-dynamo/aiconfigurator NCCL tables 095f58a51 (Apache-2.0): "
EFFICIENCIES = tuple(f"eff_{knot}" for knot in range(len(KNOT_S)))
KEYS = ("kind", "peak_bytes_per_s", "collective", "num_ranks")
FIELDS = (*KEYS, "call_s", "hop_s", *EFFICIENCIES, "source")
SMALL_BYTES = 8192
#: Ranks beyond eight add half of what the steps from four to eight did: small messages go by tree.
TREE_FRAC = 0.5


def measured(truth: Path) -> pd.DataFrame:
    """NCCL rows with the median over versions and runs."""
    rows = pd.read_csv(truth / "aic_comm.csv.xz")
    rows = rows[(rows.library == "nccl") & rows.system.isin(list(LINK_BYTES_PER_S))]
    keys = ["system", "collective", "dtype", "num_gpus", "bytes"]
    rows = rows.groupby(keys, as_index=False).latency_ms.median()
    return rows.assign(seconds=rows.latency_ms / 1e3, link=rows.system.map(LINK_BYTES_PER_S))


def fit(rows: pd.DataFrame, share: float) -> tuple[float, np.ndarray]:
    """Start-up and efficiency at the knots for one collective and number of ranks."""
    call = float(np.exp(np.log(rows[rows.bytes <= SMALL_BYTES].seconds).mean()))
    ideal = (rows.bytes / rows.link).to_numpy()
    knots, position = np.log(KNOT_S), np.log(ideal)

    def residual(theta: np.ndarray) -> np.ndarray:
        rate = np.exp(np.interp(position, knots, theta))
        predicted = np.log(call + share * ideal / rate)
        smooth = 0.03 * np.diff(theta, n=2)
        falling = 10 * np.maximum(np.diff(theta) - 0.97 * np.diff(knots), 0)  # time must rise
        return np.concatenate([predicted - np.log(rows.seconds.to_numpy()), smooth, falling])

    start = np.log(np.clip(np.array(KNOT_S) / 1e-4, 0.02, 0.75))
    found = least_squares(residual, start, bounds=(np.log(1e-3), np.log(1.3)))
    return call, np.exp(found.x)


def fitted_kind(kind: str, systems: Collection[str], rows: pd.DataFrame) -> Iterator[Row]:
    """Rows of one kind of link, from the systems that have it."""
    mine = rows[rows.system.isin(list(systems))]
    source = SOURCE + ", ".join(systems)
    for name, (label, share) in COLLECTIVES.items():
        calls = {}
        for ranks in MEASURED_RANKS:
            cell = mine[(mine.collective == label) & (mine.num_gpus == ranks)]
            if name == "all_reduce" and kind not in ("pcie", "nvlink3"):
                cell = cell[(cell.dtype == "int8") | (ranks < 8)]
            calls[ranks], eff = fit(cell, share(ranks))
            hop = (
                TREE_FRAC * max(calls[ranks] - calls.get(ranks // 2, calls[ranks]), 0) / (ranks / 2)
            )
            yield row(kind, name, ranks, calls[ranks], hop, eff, source)
    switched = mine[
        (mine.collective == "all_reduce") & (mine.num_gpus == 8) & (mine.dtype == "half")
    ]
    if kind in ("nvlink4", "nvlink5") and len(switched):
        call, eff = fit(switched, 2 * 7 / 8)
        yield from (row(kind, "in_switch", n, call, 0.0, eff, source) for n in MEASURED_RANKS)
    yield from pair_rows(kind, calls[2])


def pair_rows(kind: str, call_s: float) -> Iterator[Row]:
    """Point to point: 0.86 of the link, nvbandwidth on GB200 NVL72 and H100 SXM pairs."""
    source = "nvbandwidth pair copies: GB200 770 of 900 GB/s, H100 396 of 450 GB/s; PCIe 5 0.88"
    eff = curve(0.86, fill_s=5e-6, small_frac=0.3)
    yield from (row(kind, "send_recv", n, call_s, 0.0, eff, source) for n in MEASURED_RANKS)


def curve(top_frac: float, *, fill_s: float, small_frac: float) -> np.ndarray:
    """Efficiency of the faster of a low-latency protocol and a pipelined one that must fill."""
    ideal = np.array(KNOT_S)
    return ideal / np.minimum(ideal / small_frac, ideal / top_frac + fill_s)


def row(
    kind: str, name: str, ranks: int, call_s: float, hop_s: float, eff: np.ndarray, source: str
) -> Row:
    """One line of the table: a call's fixed seconds, those per hop, and efficiency at the knots."""
    values = {f"eff_{i}": f"{e:.4g}" for i, e in enumerate(eff)}
    family, peak = PEAKS.get(kind, (kind, 0.0))
    key: Row = {"kind": family, "peak_bytes_per_s": f"{peak:.4g}"}
    cell = {"collective": name, "num_ranks": ranks, "source": source}
    return key | cell | {"call_s": f"{call_s:.3g}", "hop_s": f"{hop_s:.3g}"} | values


def mean_of(rows: Sequence[Row], kinds: Collection[str], kind: str, source: str) -> Iterator[Row]:
    """Geometric mean of fitted kinds, for links of the same family that nobody measured."""
    wanted = [PEAKS[k] for k in kinds]
    table = pd.DataFrame([r for r in rows if (r["kind"], float(r["peak_bytes_per_s"])) in wanted])
    numbers = [f for f in FIELDS if f.startswith("eff_") or f in ("call_s", "hop_s")]
    table[numbers] = table[numbers].astype(float)
    for (name, ranks), cell in table.groupby(["collective", "num_ranks"], sort=False):
        mean = np.exp(np.log(cell[numbers].clip(lower=1e-12)).mean())
        eff = mean[[f for f in numbers if f.startswith("eff_")]].to_numpy()
        yield row(kind, name, ranks, mean.call_s, mean.hop_s, eff, source)


ALL = (*COLLECTIVES, "send_recv")


def network_rows(
    kind: str, *, top_frac: float, latency_s: float, source: str, proxy_s: float = 5e-6
) -> Iterator[Row]:
    """Links between nodes, from their specification alone.

    A step costs the wire latency and proxy threads on both sides; the pipeline fills in 40 us and
    four latencies; small messages use one network card of eight at a quarter of its rate.
    """
    step_s = latency_s + proxy_s
    eff = curve(top_frac, fill_s=40e-6 + 4 * latency_s, small_frac=1 / 32)
    for name in ALL:
        steps = 2 if name == "all_reduce" else 1
        yield from (row(kind, name, n, steps * (n - 1) * step_s, steps * step_s, eff, source)
                    for n in MEASURED_RANKS)  # fmt: skip


def mesh_rows(kind: str, tops: Sequence[float], source: str) -> Iterator[Row]:
    """Devices of a node that a link joins pair by pair: few ranks have few of the links."""
    for name in ALL:
        for ranks, top in zip(MEASURED_RANKS, tops, strict=True):
            eff = curve(top, fill_s=10e-6, small_frac=top / 3)
            yield row(kind, name, ranks, 1e-5 + 2e-6 * ranks, 1e-6, eff, source)


def ruled_rows() -> Iterator[Row]:
    """Kinds without a table: engineering rules, each with its reason."""
    rule = "rule: {} of line rate after headers and flow control; 5 us per step in proxy threads"
    for kind, top, latency in (
        ("infiniband", 0.92, 0.7e-6), ("roce", 0.90, 2e-6), ("slingshot", 0.85, 2e-6),
        ("tcpxo", 0.85, 20e-6), ("tcpx", 0.5, 20e-6),
        ("ethernet", 0.85, 30e-6),
    ):  # fmt: skip
        yield from network_rows(kind, top_frac=top, latency_s=latency, source=rule.format(top))
    plugin = "rule: 0.85 of line rate; {:.0f} us between nodes, aws-ofi-nccl 01666ec for {}"
    for kind, latency, instances in (
        ("efa", 75e-6, "p4d, whose messages are sent and received"),
        ("efa-p5", 35e-6, "p5en and later, which write to remote memory"),
        ("efa-p6", 35e-6, "p5en and later, which write to remote memory"),
    ):
        yield from network_rows(
            kind, top_frac=0.85, latency_s=latency, proxy_s=0.0,
            source=plugin.format(latency * 1e6, instances),
        )  # fmt: skip
    fabric = "MI300X all_reduce 8 ranks 0.70, 2 ranks 0.106 of the node's xGMI (each peer has 1/7)"
    yield from mesh_rows("infinity-fabric", (0.106, 0.32, 0.70), fabric)
    ports = (
        "rule: 0.9 of 3 of 24 ports to each peer, all peers at once, calls as on MI300X's mesh; "
        "docs.habana.ai, Intel Gaudi Network Configuration, read 2026-11-27"
    )
    for kind in ("roce-gaudi2", "roce-gaudi3"):
        tops = [0.9 * 3 * (ranks - 1) / 24 for ranks in MEASURED_RANKS]
        yield from mesh_rows(kind, tops, ports)
    staged = "rule: without peer access one stream of copies through host memory serves all ranks"
    for name in ALL:
        for ranks in MEASURED_RANKS:
            eff = curve(1.0 / ranks, fill_s=20e-6, small_frac=0.3 / ranks)
            yield row("pcie-host", name, ranks, 1e-5 + 2e-6 * ranks, 2e-6, eff, staged)
    torus = "rule: XLA pipelines rings over all torus axes; 0.85 of the chip's links, 1 us per hop"
    for kind, source in (("ici", torus), ("neuronlink", torus), ("generic", "rule: as a torus")):
        for name in ALL:
            for ranks in MEASURED_RANKS:
                eff = curve(0.85, fill_s=5e-6, small_frac=0.3)
                yield row(kind, name, ranks, 4e-6 + 1e-6 * ranks, 0.1e-6, eff, source)


def table(rows: pd.DataFrame, held_out: Collection[str] = ()) -> list[Row]:
    """All coefficients; systems in ``held_out`` are not seen."""
    kinds = {k: [s for s in v if s not in held_out] for k, v in KINDS.items()}
    fitted = [r for k, v in kinds.items() if v for r in fitted_kind(k, v, rows)]
    nvlinks = [k for k in ("nvlink3", "nvlink4", "nvlink5") if kinds[k]]
    source = f"geometric mean of {', '.join(nvlinks)}"
    return fitted + list(mean_of(fitted, nvlinks, "nvlink", source)) + list(ruled_rows())


def main() -> None:
    """Print the table."""
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table(measured(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
