"""Build a release, and use it as a stranger would before anybody else does.

Usage: python tools/release.py [--out dist]

Builds the source archive and the wheel from what is committed, checks the version, the wheel's
files and its size, installs the wheel into an empty environment and plans with it, and installs the
source archive beside it. Prints what is left to do by hand: the tag and the upload.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_WHEEL_BYTES = 6_000_000
_BUILD = "from setuptools import build_meta as b; b.build_sdist({0!r}); b.build_wheel({0!r})"


def main() -> int:
    """Build, check, install and plan; 1 where anything is amiss."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out.resolve()
    version = stated_version()
    wrong = wrong_version(version)
    with tempfile.TemporaryDirectory() as folder:
        wheel, archive = built(Path(folder), out, version)
        wrong += wrong_files(wheel)
        if not wrong:
            print(tried(Path(folder) / "empty", wheel, archive))
    print("\n".join(wrong) or f"ready: git tag v{version} && twine upload {out.name}/*{version}*")
    return 1 if wrong else 0


def stated_version() -> str:
    """The version that pyproject.toml states."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"', text, re.MULTILINE)
    assert found is not None, "pyproject.toml states no version"
    return found[1]


def wrong_version(version: str) -> list[str]:
    """Where another version stands, and whether something is not committed."""
    places = {
        "src/paceline/release.py": f'__version__ = "{version}"',
        "CHANGELOG.md": f"## [{version}]",
    }
    wrong = [
        f"{name}: `{line}` is not there"
        for name, line in places.items()
        if line not in (ROOT / name).read_text(encoding="utf-8")
    ]
    changed = _run(["git", "status", "--porcelain"])
    return wrong + (["commit first: only what is committed is built"] if changed else [])


def built(folder: Path, out: Path, version: str) -> tuple[Path, Path]:
    """The wheel and the source archive, built from the last commit alone."""
    source = folder / "source"
    source.mkdir()
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run(f"git archive HEAD | tar -x -C '{source}'", shell=True, check=True, cwd=ROOT)
    subprocess.run(
        [sys.executable, "-c", _BUILD.format(str(out))], check=True, cwd=source,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return out / f"paceline-{version}-py3-none-any.whl", out / f"paceline-{version}.tar.gz"


def wrong_files(wheel: Path) -> list[str]:
    """Files that the wheel lacks or should not have, and whether it is too large."""
    tracked = set(_run(["git", "ls-files", "src/paceline"]).split())
    expected = {name.removeprefix("src/") for name in tracked}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    size = wheel.stat().st_size
    wrong = [f"the wheel lacks {name}" for name in sorted(expected - packed)]
    wrong += [f"the wheel has {name}" for name in sorted(packed - expected)]
    if size > MAX_WHEEL_BYTES:
        wrong.append(f"the wheel has {size:,} bytes, at most {MAX_WHEEL_BYTES:,}")
    return wrong


def tried(empty: Path, wheel: Path, archive: Path) -> str:
    """The first line of a plan by the wheel, installed where nothing else is."""
    subprocess.run([sys.executable, "-m", "venv", str(empty)], check=True)
    pip = [str(empty / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, str(wheel)], check=True)
    plan = [str(empty / "bin" / "paceline"), "plan", "resnet50", "--deadline", "24h"]
    told = subprocess.run(plan, check=True, cwd=empty, capture_output=True, text=True).stdout
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(archive)], check=True)
    subprocess.run(plan, check=True, cwd=empty, capture_output=True)
    return told.partition("\n")[0]


def _run(command: list[str]) -> str:
    return subprocess.run(
        command, check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
