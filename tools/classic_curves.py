"""The scaling curves that everybody quotes, beside the tool's; prints a table.

python tools/classic_curves.py
"""

from paceline.catalog import find_device, load_catalog
from paceline.catalog.entities import Link, Source
from paceline.errors import PacelineError
from paceline.parallel import BatchRule, Cluster, scaling_curve
from paceline.trace import Configuration, load_workload, lower

#: Title, model, device, devices per node, link inside, network (kind, B/s per node), batch per
#: device, sequence, precision, counts, published efficiency at the last against the first.
CLASSICS = (
    ("AlexNet 1→2, Krizhevsky 2014", "alexnet", "K40", 8, "ws-pcie3", None, 128, 1, "fp32",
     (1, 2), 0.965),
    ("AlexNet 1→4", "alexnet", "K40", 8, "ws-pcie3", None, 128, 1, "fp32", (1, 4), 0.915),
    ("AlexNet 1→8", "alexnet", "K40", 8, "ws-pcie3", None, 128, 1, "fp32", (1, 8), 0.77),
    ("ResNet-50 8→256, Goyal 2017", "resnet50", "P100 SXM2", 8, "dgx1-p100",
     ("ethernet", 6.25e9), 32, 1, "fp32", (8, 256), 0.90),
    ("BERT-base 16→256 (BERT-large published), DeepSpeed 2020", "bert-base", "V100 SXM3", 16,
     "dgx2", ("infiniband", 100e9), 64, 128, "fp16", (16, 256), 0.865),
    ("BERT-base 16→1024", "bert-base", "V100 SXM3", 16, "dgx2", ("infiniband", 100e9), 16, 128,
     "fp16", (16, 1024), 0.708),
)  # fmt: skip


def main() -> None:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    print("| curve | devices | published | tool | difference | lost to |")
    print("|---|---|---|---|---|---|")
    for row in CLASSICS:
        title, model, name, per_node, inside, network, batch, seq, precision, counts, known = row
        node = None if network is None else Link(
            name="network", scope="node", kind=network[0], bytes_per_s=network[1], latency_s=2e-5,
            measured_bus_bytes_per_s=None, reduces_in_switch=False, source=Source(text=title),
        )  # fmt: skip
        try:
            device = find_device(catalog, name)
            cluster = Cluster(device=device, devices_per_node=per_node, device_link=links[inside],
                              node_link=node)  # fmt: skip
            found = scaling_curve(
                lower(load_workload(model).passes[0].graph, Configuration(precision=precision)),
                cluster, counts=counts, batch=BatchRule(batch_per_device=batch), seq=float(seq),
            )  # fmt: skip
        except PacelineError as error:
            print(f"| {title} | {counts} | {known:.0%} | – | {error} | |")
            continue
        last = found.points[-1]
        print(f"| {title} | {last.count} | {known:.0%} | {last.efficiency_frac:.0%} |"
              f" {100 * (last.efficiency_frac - known):+.0f} points | {last.limit} |")  # fmt: skip


if __name__ == "__main__":
    main()
