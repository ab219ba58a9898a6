"""Speed of the strategy search, in processor seconds; run by hand, result in strategy_search.md.

python benchmarks/strategy_search.py > benchmarks/strategy_search.md
"""

import datetime
import os
import resource
import time

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import evaluate_strategies
from paceline.parallelism.schedule.layouts import layout
from paceline.parallelism.schedule.table import ClusterLinks
from paceline.parallelism.search import enumerate_strategies, prepare_search, search_strategies
from paceline.prediction.devices import DeviceTable

CASES = (
    ("resnet50", "resnet50", 64, 8192, 1),
    ("gpt2", "gpt2", 64, 512, 1024),
    ("llama-3-8b", "llama-3-8b", 64, 256, 4096),
    ("mixtral-8x7b", "mixtral-8x7b", 64, 256, 4096),
    ("llama-3-70b", "llama-3-70b", 4096, 4096, 4096),
    ("llama-3.1-405b", "llama-3.1-405b", 16384, 16384, 8192),
)


def main() -> None:
    """Measure every case and print the page."""
    catalog = load_catalog()
    device = find_device(catalog, "H100 SXM5 80GB")
    assert device.memory_bytes
    links = {link.name: LinkTable.from_links([link]) for link in catalog.links}
    fabric = ClusterLinks(
        devices_per_node=8, device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip
    print("# Speed of the strategy search\n")
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(
        f"Measured {datetime.date.today()} with `python benchmarks/strategy_search.py`, at a load"
    )
    print(f"{load:.0f} on {cores} cores. Target: 10,000 strategies/s for an 8B model; 16,384")
    print("devices with a 405B model in under 30 s and 2 GB.\n")
    print("H100 nodes; processor seconds of one core; `strategies/s` evaluates step and memory of")
    print("every strategy in the space, stages cut anew; `prepare` evaluates blocks once per model")
    print("and cluster; `search` enumerates and evaluates all, in seconds on the wall.\n")
    columns = ("model", "devices", "load s", "prepare s", "strategies", "strategies/s", "search s")
    print("| " + " | ".join((*columns, "best")) + " |")
    print("|---|---|---|---|---|---|---|---|")
    for title, entry, num_devices, batch, seq in CASES:
        times = [time.process_time(), time.perf_counter()]
        graph = load_workload(entry).passes[0].graph
        loaded = time.perf_counter() - times[1]
        start = time.process_time()
        space = prepare_search(
            graph, Configuration(), DeviceTable.from_devices([device]), fabric, seq=seq,
            capacity_bytes=device.memory_bytes,
        )  # fmt: skip
        prepared = time.process_time() - start
        table = enumerate_strategies(space, num_devices=num_devices, global_batch=batch)
        evaluate_strategies(table, space.variants, fabric)
        layout.cache_clear()
        start = time.process_time()
        evaluate_strategies(table, space.variants, fabric)
        rate = len(table) / (time.process_time() - start)
        start = time.perf_counter()
        best = search_strategies(space, num_devices=num_devices, global_batch=batch)
        searched = time.perf_counter() - start
        print(f"| {title} | {num_devices:,} | {loaded:.1f} | {prepared:.2f} | {len(table)} |"
              f" {rate:,.0f} | {searched:.2f} | `{best.strategies[0]}`"
              f" {best.steps.step_s[0]:.2f} s |",
              flush=True)  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nPeak memory of the process {peak:.2f} GB.")


if __name__ == "__main__":
    main()
