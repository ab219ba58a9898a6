"""Turn the reference tables of compatibility facts into paceline's own stack tables.

Usage: PYTHONPATH=tools python -m facts.stack REFERENCE_FOLDER

The result under ``src/paceline/stack/data`` is committed; files named ``*_more.csv``, ``rules.csv``
and ``device_targets.csv`` are written by hand and never touched. Running it again changes nothing.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

DATA = Path(__file__).parents[2] / "src" / "paceline" / "stack" / "data"
READ_ON = "2026-11-20"
BUILD_FIELDS = (
    "framework", "release", "tag", "platform", "platform_version", "pythons", "status",
    "released", "cudnn", "nccl", "companions", "source", "read_on",
)  # fmt: skip
KERNEL_FIELDS = (
    "framework", "releases", "platform", "platform_version", "systems", "binary", "ptx",
    "evidence", "source", "read_on",
)  # fmt: skip

Row = dict[str, str]


def main(reference: Path) -> None:
    """Write every table."""
    tables = {path.stem: _read(path) for path in sorted(reference.glob("*.csv"))}
    builds = [*_torch_builds(tables), *_tensorflow_builds(tables), *_jax_builds(tables)]
    builds += [*_rocm_builds(tables)]
    _write("builds.csv", BUILD_FIELDS, builds)
    _write("kernels.csv", KERNEL_FIELDS, [*_cuda_kernels(tables), *_rocm_kernels(tables)])
    _write("toolkits.csv", *_toolkits(tables))
    _write("gpus.csv", *_gpus(tables))
    _write("images.csv", *_images(tables))
    _write("forward_compat.csv", *_forward(tables))
    _write("driver_branches.csv", *_branches(tables))


def _torch_builds(tables: dict[str, list[Row]]) -> Iterator[Row]:
    matrix = {(r["torch"], r["cuda"]): r for r in tables["pytorch_cuda"]}
    pythons = {r["torch"]: _python_range(r["python"]) for r in tables["pytorch_cuda"]}
    months = {r["torch"]: r["release_month"] for r in tables["pytorch_cuda"]}
    seen = set()
    for wheel in tables["pytorch_wheels"]:
        minor = _minor(wheel["torch"])
        row = matrix.get((minor, wheel["cuda"]), {})
        seen.add((minor, wheel["cuda"]))
        yield _build(
            framework="torch", release=wheel["torch"], tag=wheel["index_tag"],
            platform="cuda" if wheel["cuda"] else "cpu", platform_version=wheel["cuda"],
            pythons=_join_versions([*pythons.get(minor, []), *wheel["python"].split()]),
            status=row.get("status", "stable"), released=months.get(minor, ""),
            cudnn=row.get("cudnn", ""), nccl=row.get("nccl", ""), companions=_companions(wheel),
            source="; ".join(filter(None, (wheel["source"], row.get("source", "")))),
        )  # fmt: skip
    for (minor, cuda), row in matrix.items():
        if (minor, cuda) not in seen:
            yield _matrix_build(row, tag="cu" + cuda.replace(".", ""), cuda=cuda)
    for minor in {m for m, _ in matrix} - {m for m, _ in seen}:
        first = next(r for r in tables["pytorch_cuda"] if r["torch"] == minor)
        yield _matrix_build(first, tag="cpu", cuda="")


def _matrix_build(row: Row, *, tag: str, cuda: str) -> Row:
    """A build that the release matrix announces and no wheel listing confirms patch by patch."""
    return _build(
        framework="torch", release=row["torch"] + ".0", tag=tag,
        platform="cuda" if cuda else "cpu", platform_version=cuda,
        pythons=_join_versions(_python_range(row["python"])), status=row["status"],
        released=row["release_month"], cudnn=row["cudnn"] if cuda else "",
        nccl=row["nccl"] if cuda else "", companions="",
        source=row["source"] + " (first patch release of that line)",
    )  # fmt: skip


def _tensorflow_builds(tables: dict[str, list[Row]]) -> Iterator[Row]:
    for row in tables["tensorflow_cuda"]:
        cuda = row["cuda"] if "." in row["cuda"] else row["cuda"] + ".0"
        common = {
            "framework": "tensorflow", "release": row["tensorflow"],
            "pythons": _join_versions(_python_list(row["python"])), "status": "stable",
            "released": "", "nccl": "", "companions": "", "source": row["source"],
        }  # fmt: skip
        yield _build(**common, tag="gpu", platform="cuda", platform_version=cuda,
                     cudnn=row["cudnn"])  # fmt: skip
        yield _build(**common, tag="cpu", platform="cpu", platform_version="", cudnn="")


def _jax_builds(tables: dict[str, list[Row]]) -> Iterator[Row]:
    for row in tables["jax_cuda"]:
        common = {
            "framework": "jax", "release": row["jax"], "pythons": _jax_pythons(row),
            "status": "stable", "released": row["date"][:7], "source": row["source"],
        }  # fmt: skip
        for tag, cuda in _jax_variants(row):
            yield _build(**common, tag=tag, platform="cuda", platform_version=cuda,
                         cudnn=row["cudnn_range"], nccl=row["nccl"], companions="")  # fmt: skip
        if row["wheel"] != "jax[cuda12]" or row["jax"] != tables["jax_cuda"][0]["jax"]:
            for platform in ("cpu", "tpu"):
                yield _build(**common, tag=platform, platform=platform, platform_version="",
                             cudnn="", nccl="", companions="")  # fmt: skip


def _jax_variants(row: Row) -> Iterator[tuple[str, str]]:
    tags = re.findall(r"cuda\d+", row["wheel"])
    toolkits = re.findall(r"\d+\.\d+|\b\d+\b", row["built_with_cuda"].split("(")[0])
    if not toolkits:
        toolkits = re.findall(r"\d+\.\d+", row["cuda_runtime_range"])
    for tag in tags:
        major = tag.removeprefix("cuda")
        known = [t for t in toolkits if t.split(".")[0] == major]
        if known:
            yield tag, known[0] if "." in known[0] else known[0] + ".0"


def _jax_pythons(row: Row) -> str:
    """From the floor that a release states to the newest Python that its changelog has added."""
    release = _key(row["jax"])
    newest = 11 + sum(release >= _key(first) for first in ("0.4.17", "0.4.34", "0.7.1"))
    lowest = int(row["python_min"].split(".")[1])
    return " ".join(f"3.{minor}" for minor in range(lowest, newest + 1))


def _rocm_builds(tables: dict[str, list[Row]]) -> Iterator[Row]:
    first_of_minor: dict[str, Row] = {}
    for row in tables["pytorch_cuda"]:
        first_of_minor.setdefault(row["torch"], row)
    for minor, row in first_of_minor.items():
        yield _build(
            framework="torch", release=minor + ".0", tag="rocm" + row["stable_rocm"],
            platform="rocm", platform_version=row["stable_rocm"],
            pythons=_join_versions(_python_range(row["python"])), status="stable",
            released=row["release_month"], cudnn="", nccl="", companions="",
            source=row["source"] + ', column "Stable ROCm"',
        )  # fmt: skip
    tensorflow_pythons = {
        _minor(r["tensorflow"]): _python_list(r["python"]) for r in tables["tensorflow_cuda"]
    }
    for row in tables["rocm_frameworks"]:
        for release in re.findall(r"\d+\.\d+\.\d+", row["tensorflow"]):
            yield _build(
                framework="tensorflow", release=release, tag="rocm" + row["rocm"],
                platform="rocm", platform_version=row["rocm"],
                pythons=_join_versions(tensorflow_pythons[_minor(release)]), status="stable",
                released="", cudnn="", nccl="", companions="", source=row["source"],
            )  # fmt: skip


def _cuda_kernels(tables: dict[str, list[Row]]) -> Iterator[Row]:
    for row in tables["pytorch_gpu_arch"]:
        if ".." in row["sass_compute_capabilities"]:
            continue  # A range is no list; build scripts with the full list are in kernels_more.
        yield _kernel(
            framework="torch", releases=_minor_range(row["torch"]), platform="cuda",
            platform_version=row["cuda"], systems=row["platform"],
            binary=row["sass_compute_capabilities"], ptx=row["ptx"], evidence=row["evidence"],
            source=row["source"],
        )  # fmt: skip


def _rocm_kernels(tables: dict[str, list[Row]]) -> Iterator[Row]:
    for row in tables["rocm_torch_gpu_arch"]:
        yield _kernel(
            framework="torch", releases="", platform="rocm", platform_version=row["rocm"],
            systems="linux-x86_64", binary=row["gfx_targets_in_torch_wheel"], ptx="",
            evidence="measured with torch.cuda.get_arch_list()", source=row["source"],
        )  # fmt: skip
    for row in tables["rocm_frameworks"]:
        if row["tensorflow"] and row["gpu_targets"].startswith("gfx"):
            yield _kernel(
                framework="tensorflow", releases="", platform="rocm",
                platform_version=row["rocm"], systems="linux-x86_64",
                binary=row["gpu_targets"], ptx="", evidence="documented", source=row["source"],
            )  # fmt: skip


def _toolkits(tables: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[Row]]:
    fields = ("cuda", "update", "driver_linux", "driver_windows", "note", "source", "read_on")
    rows = [
        {
            "cuda": r["cuda"], "update": r["release"],
            "driver_linux": r["toolkit_driver_linux_min"],
            "driver_windows": r["toolkit_driver_windows_min"], "note": r["note"],
            "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["cuda_toolkit_driver"]
    ]  # fmt: skip
    return fields, rows


def _gpus(tables: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[Row]]:
    fields = ("name", "vendor", "device_class", "architecture", "platform", "code", "system",
              "source", "read_on")  # fmt: skip
    rows = [
        {
            "name": r["gpu"], "vendor": r["vendor"], "device_class": r["class"],
            "platform": "jetson" if _needs_jetpack_wheels(r) else "cuda",
            "system": "linux-aarch64" if _sits_on_arm(r) else "linux-x86_64",
            "architecture": r["architecture"], "code": r["compute_capability"],
            "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["nvidia_gpu_compute_capability"]
    ]  # fmt: skip
    for row in tables["amd_gpu_arch"]:
        rows += [
            {
                "name": name, "vendor": "AMD", "device_class": "", "source": row["source"],
                "platform": "rocm", "system": "linux-x86_64",
                "architecture": row["architecture"], "code": row["llvm_target"],
                "read_on": READ_ON,
            }
            for name in _split_names(row["gpu"])
        ]  # fmt: skip
    return fields, rows


def _needs_jetpack_wheels(row: Row) -> bool:
    """Jetsons before Thor; from Thor on they run the ordinary Arm builds."""
    return row["class"] == "jetson" and row["architecture"] != "Blackwell"


def _sits_on_arm(row: Row) -> bool:
    return row["class"] == "jetson" or row["gpu"].startswith(("GB", "GH"))


def _images(tables: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[Row]]:
    fields = ("repository", "tag", "platform", "platform_version", "framework", "release",
              "cudnn_major", "flavor", "ubuntu", "python", "source", "read_on")  # fmt: skip
    rows = [
        {
            "repository": r["repository"], "tag": r["tag"], "platform": "cuda",
            "platform_version": r["cuda"], "framework": "", "release": "",
            "cudnn_major": r["cudnn_major"], "flavor": r["flavor"], "ubuntu": r["ubuntu"],
            "python": "", "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["nvidia_cuda_images"]
    ]  # fmt: skip
    rows += [
        {
            "repository": r["repository"], "tag": r["tag"], "platform": "rocm",
            "platform_version": r["rocm"], "framework": "torch", "release": r["pytorch"],
            "cudnn_major": "", "flavor": "release", "ubuntu": r["ubuntu"], "python": r["python"],
            "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["pytorch_rocm_images"]
    ]  # fmt: skip
    return fields, rows


def _forward(tables: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[Row]]:
    fields = ("cuda", "accepted_drivers", "refused_branches", "source", "read_on")
    rows = [
        {
            "cuda": _minor(re.findall(r"\d+\.\d+", r["container_cuda"])[0]),
            "accepted_drivers": r["data_center_forward_compat_drivers"].replace("+", ""),
            "refused_branches": r["not_forward_compatible"].replace("R", ""),
            "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["cuda_forward_compat"]
        if "unreliable" not in r["source"]
    ]  # fmt: skip
    return fields, rows


def _branches(tables: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[Row]]:
    fields = ("branch", "designation", "end_of_life", "source", "read_on")
    rows = [
        {
            "branch": branch.removeprefix("R"), "designation": r["designation"],
            "end_of_life": r["end_of_life"], "source": r["source"], "read_on": READ_ON,
        }
        for r in tables["driver_branches"]
        for branch in r["branch"].split()
    ]  # fmt: skip
    return fields, rows


def _build(**values: str) -> Row:
    return values | {"read_on": READ_ON}


def _kernel(**values: str) -> Row:
    return values | {"read_on": READ_ON}


def _companions(wheel: Row) -> str:
    pairs = (f"{name}={wheel[name]}" for name in ("torchvision", "torchaudio") if wheel[name])
    return " ".join(pairs)


def _split_names(text: str) -> list[str]:
    """``Instinct MI210/MI250`` and ``Radeon RX 7900 XTX / XT`` name several products at once."""
    parts = [p.strip() for p in re.split(r"/|,", text)]
    series = re.match(r"(Instinct|Radeon (?:RX|PRO|AI PRO))", parts[0])
    prefix = series.group(1) + " " if series else ""
    number = re.search(r"\d{4}", parts[0])
    names = [parts[0]]
    for part in parts[1:]:
        has_number = re.search(r"\d", part)
        middle = "" if has_number or number is None else number.group() + " "
        names.append(prefix + middle + part)
    return [re.sub(r"^(Radeon RX) PRO", "Radeon PRO", n) for n in names]


def _python_range(text: str) -> list[str]:
    low, high = re.findall(r"3\.(\d+)", text.split("(")[0])
    return [f"3.{minor}" for minor in range(int(low), int(high) + 1)]


def _python_list(text: str) -> list[str]:
    versions = []
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        major, first = low.split(".")
        last = high.split(".")[1] if high else first
        versions += [f"{major}.{minor}" for minor in range(int(first), int(last) + 1)]
    return versions


def _minor_range(minor: str) -> str:
    major, number = minor.split(".")
    return f">={minor},<{major}.{int(number) + 1}"


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _join_versions(versions: Iterable[str]) -> str:
    return " ".join(sorted(set(versions), key=_key))


def _read(path: Path) -> list[Row]:
    """Rows of a table, their sources reduced to where a fact stands."""
    with path.open(newline="") as file:
        return [{k: _source(v) if k == "source" else v for k, v in row.items()}
                for row in csv.DictReader(file)]  # fmt: skip


def _source(text: str) -> str:
    reduced = re.sub(r" \(find_string (id \d+|hit)\)", "", text)
    return re.sub(r", find_string id \d+", "", reduced)


def _write(name: str, fields: tuple[str, ...], rows: list[Row]) -> None:
    with (DATA / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{name}: {len(rows)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
