"""From a tool's message, or from the machine itself, to the cause, its proof and one remedy.

The causes are data (``data/causes.toml``): somebody who knows no Python can add one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache

from paceline.catalog.entities import Device
from paceline.execution.machine.facts import HostFacts
from paceline.execution.machine.findings import Finding
from paceline.execution.machine.gpu_health import diagnose_gpus
from paceline.shipped import shipped_toml
from paceline.units import format_bytes
from paceline.values import dataclass

_SMALL_SHM_BYTES = 256e6
#: What a line looks like that says how a program ended: an exception of Python, or a log's word.
_ENDS = re.compile(
    r"^.*(?:\b\w*(?:Error|Exception)\b:|\b(?:ERROR|FATAL|CRITICAL)\b).*$", re.MULTILINE
)
#: What is asked without being told to: each only reads, and says what is wrong in its own words.
_KERNEL_LOG = ("dmesg", "--level=err,warn,crit,alert,emerg")
_TOOLS = (("nvidia-smi",), ("rocminfo",), _KERNEL_LOG)
#: How a line of the kernel's log begins where NVIDIA's driver met an error of a GPU.
_GPU_ERROR = "NVRM: Xid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A known way for a machine to be broken.

    Attributes:
        name: Stable key.
        pattern: What its message looks like, as a regular expression.
        cause: What is wrong, in one sentence.
        facts: Names of `HostFacts` that prove or refute it here.
        remedy: One command.
    """

    name: str
    pattern: re.Pattern[str]
    cause: str
    facts: tuple[str, ...]
    remedy: str


@cache
def load_causes() -> tuple[Cause, ...]:
    """Every known cause, most specific first."""
    return tuple(
        Cause(
            name=row["id"],
            pattern=re.compile(row["pattern"]),
            cause=row["cause"],
            facts=tuple(row["facts"]),
            remedy=row["remedy"],
        )
        for row in shipped_toml("execution", "causes.toml")["cause"]
    )


def diagnose_output(text: str, facts: HostFacts) -> tuple[Finding, ...]:
    """Causes whose message occurs in ``text``, most specific first.

    A match inside one that an earlier cause has explained is not reported again.

    Args:
        text: What a tool printed: a log, a traceback, a kernel log.
        facts: The machine it ran on.
    """
    found: list[Finding] = []
    explained: set[int] = set()
    for cause in load_causes():
        match = cause.pattern.search(text)
        if match is None or _line_of(text, match.start()) in explained:
            continue
        explained.update(range(_line_of(text, match.start()), _line_of(text, match.end()) + 1))
        proof = (_whole_line(text, match.start()), *_fact_lines(cause.facts, facts))
        found.append(
            Finding(
                name=cause.name, cause=cause.cause, proof=proof, remedy=_filled(cause.remedy, facts)
            )
        )
    return tuple(found)


def last_error(text: str) -> str:
    r"""The last line of ``text`` that says how a program ended; empty where none does.

    >>> last_error("step 3\nValueError: no such column\nbye")
    'ValueError: no such column'
    """
    ends = list(_ENDS.finditer(text))
    return _whole_line(text, ends[-1].start()) if ends else ""


def tool_output(tools: Iterable[Sequence[str]] = _TOOLS, *, timeout_s: float = 10.0) -> str:
    """What the machine's own tools print when asked now; nothing for those it does not have.

    Args:
        tools: Commands that only read.
        timeout_s: A tool that hangs (as nvidia-smi does on a lost GPU) is left alone after this.
    """
    parts = []
    for command in tools:
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout_s,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        parts.append(done.stdout + done.stderr)
    return "\n".join(parts)


def diagnose_machine(
    facts: HostFacts, environment: Iterable[str] = (), *, device: Device | None = None
) -> tuple[Finding, ...]:
    """What is wrong here without any message: only what the facts themselves prove.

    Args:
        facts: This machine.
        environment: Names of environment variables that are set.
        device: The catalogue's entry of its GPUs, whose links they ought to have; None if unknown.
    """
    checks = (
        _gpu_without_driver(facts),
        _small_shared_memory(facts),
        *diagnose_gpus(facts.gpus, device),
        _library_path(facts, frozenset(environment)),
    )
    return tuple(finding for finding in checks if finding is not None)


def diagnose_before_run(facts: HostFacts, device: Device | None = None) -> tuple[Finding, ...]:
    """What is wrong with the GPUs here before a job's first step, the kernel's log looked at, too.

    Args:
        facts: This machine.
        device: The catalogue's entry of its GPUs; None if unknown.
    """
    log = [line for line in tool_output([_KERNEL_LOG]).splitlines() if _GPU_ERROR in line]
    return (*diagnose_output("\n".join(log), facts), *diagnose_gpus(facts.gpus, device))


def fact_text(name: str, facts: HostFacts) -> str:
    """One fact as a person reads it."""
    value = getattr(facts, name)
    if name == "gpus":
        words = ", ".join(_gpu_text(gpu.name, gpu.compute_capability) for gpu in facts.gpus)
        return f"GPUs: {words or 'none'}"
    if name.endswith("_bytes") and value is not None:
        return f"{name.removesuffix('_bytes').replace('_', ' ')}: {format_bytes(value)}"
    if isinstance(value, tuple):
        value = ", ".join(value) or None
    return f"{name.replace('_', ' ')}: {'none' if value is None else value}"


def _filled(remedy: str, facts: HostFacts) -> str:
    """A remedy with this machine's facts in place of their names."""
    capability = next((g.compute_capability for g in facts.gpus if g.compute_capability), None)
    gpu = f"sm_{capability.replace('.', '')}" if capability else None
    values = {"{gpu}": gpu, "{driver}": facts.nvidia_driver, "{rocm}": facts.rocm}
    for name, value in values.items():
        remedy = remedy.replace(name, value or name[1:-1].upper())
    return remedy


def _gpu_text(name: str, capability: str | None) -> str:
    return f"{name} (compute capability {capability})" if capability else name


def _fact_lines(names: Iterable[str], facts: HostFacts) -> tuple[str, ...]:
    return tuple(f"this machine · {fact_text(name, facts)}" for name in names)


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position)


def _whole_line(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:240]


def _gpu_without_driver(facts: HostFacts) -> Finding | None:
    if facts.nvidia_driver or not any(gpu.vendor == "NVIDIA" for gpu in facts.gpus):
        return None
    return Finding(
        name="gpu-without-driver",
        cause="an NVIDIA GPU is on the PCI bus and no driver is loaded for it",
        proof=_fact_lines(("gpus", "nvidia_driver", "os_name"), facts),
        remedy="sudo ubuntu-drivers install --gpgpu && sudo reboot",
    )


def _small_shared_memory(facts: HostFacts) -> Finding | None:
    if facts.shm_bytes is None or facts.shm_bytes >= _SMALL_SHM_BYTES or not facts.container:
        return None
    return Finding(
        name="small-shared-memory",
        cause="this container's /dev/shm is too small for loader workers and for NCCL",
        proof=_fact_lines(("shm_bytes", "container"), facts),
        remedy="docker run --shm-size=8g IMAGE",
    )


def _library_path(facts: HostFacts, environment: frozenset[str]) -> Finding | None:
    if "LD_LIBRARY_PATH" not in environment or not facts.gpus:
        return None
    return Finding(
        name="library-path-set",
        cause="LD_LIBRARY_PATH is set and may put other CUDA libraries before those of the wheel",
        proof=("this machine · LD_LIBRARY_PATH is set", *_fact_lines(("cuda_driver",), facts)),
        remedy="unset LD_LIBRARY_PATH",
    )
