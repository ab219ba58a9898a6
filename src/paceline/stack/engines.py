"""What runs a model, by name: inference engines with their habits, and plain loops."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeAlias

from paceline.catalog.entities import Device
from paceline.dtypes import find_precision
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.plugins import plugin_files
from paceline.shipped import shipped_rows, shipped_toml
from paceline.values import dataclass

#: Major and minor number.
Release: TypeAlias = tuple[int, int]

#: Stands for a release that a table does not state: habits are the slowest.
UNSTATED: Release = (0, 0)
#: The host that launches each kernel of an engine: a row of the calibration's ``host`` table.
LAUNCHES = "launches"
#: Serves language models unless a name is given, and what does so where it has no kernels.
USUAL_ENGINE, PORTABLE_ENGINE = "vllm", "llamacpp"
#: Runs everything else.
USUAL_LOOP = "torch"

#: What drives devices that run no other platform's kernels.
_OWN_DRIVERS = frozenset({"mps", "xpu"})
_ENGINES = "engines.toml"
#: What may stand behind a name.
_RELEASE = r"(?:[ /=:@v-]*(?P<release>\d+\.\d+)\S*)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """How much an engine puts into one step unless it is told otherwise.

    Attributes:
        max_requests: Sequences at once.
        chunk_tokens: Tokens of a step: of prompts that are read, and those that are written.
        memory_frac: Of a device's memory, what weights, workspace and cache take together.
    """

    max_requests: int
    chunk_tokens: int
    memory_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What software does around the passes of a model; from ``data/engines.toml``.

    Attributes:
        name: As ``--framework`` takes it.
        title: As printed.
        framework: Whose releases must run on the device.
        host: Whose dispatch applies: a name in the calibration's ``host`` table. Where that is not
            its own framework, plans say so.
        compiler: How its steps are launched; None where the user chooses.
        platforms: Whose devices it runs on, as kernels or as drivers (``mps``, ``xpu``) are named;
            none where all that its framework runs on will do.
        serves: Whether it keeps requests in flight; a loop runs a batch as it is.
        is_own: Whether a loop's kernels are its own, which are predicted as compiled PyTorch's.
        writes_by_op: Whether each op of a model that writes tokens is launched, as PyTorch does.
        least_capability: Of NVIDIA's devices; None where all will do.
        mixes_prompts: Whether a step that writes tokens reads a prompt too.
        mixes_since: First release that does so unless told otherwise; None where all do.
        keeps_windows: Whether layers with a window of attention keep and read no more than it.
        windows_since: First release that does so; None where all do.
        path_s: Way of a request from its client to the engine behind HTTP, and of its first token
            back; None where it is unknown.
        request_s: Of the host, in each step, for each request that it writes a token for:
            scheduling, handing out, streaming; None where it is unknown.
        step_s: Of the host, in each step, whatever is in it; None where it is unknown.
        graphs_since: First release whose steps are replayed as graphs; None where all are alike.
        graphs_on: Platforms, or drivers of devices with one of their own, on which they are; all of
            them where none is named.
        overlaps_since: First release whose host does so while the device works on the next step;
            None where it is unknown.
        all_reduce: Its own kernel that sums over ranks; None where the library sums.
        driver_all_reduce: What sums on devices with a driver of their own; None likewise.
        max_requests: Sequences at once.
        chunk_tokens: Tokens of a step.
        large_max_requests: The same on devices with much memory; None where it does not change.
        large_chunk_tokens: Likewise.
        large_memory_bytes: Memory from which on a device has much.
        large_capability: Least capability of NVIDIA's devices that count so.
        memory_frac: Of a device's memory, what weights, workspace and cache take together; the
            usual engine's where it is unknown.
        leaves_weights: Whether that share is of what weights and workspace leave, for the cache.
        reserves_answers: Whether a request is admitted only when its whole answer has room.
        buckets: Whether replicas exchange gradients in buckets; else each tensor by itself.
        narrow_cache_of: Precisions whose checkpoints bring a cache of keys and values in FP8.
        widens_fp8_capability: Least capability of NVIDIA's devices on which it keeps weights in
            FP8, and widens them, where no unit multiplies FP8; None where it has no such kernels.
        formats: Names of weight formats that its files alone have, in small letters.
        log_sigma: How far its kernels are from those that are modelled, as the standard deviation
            of a logarithm; 0 where steps of it were measured.
        is_portable: Whether its kernels are written once for devices of all makers.
        splits_layers: Whether devices hold layers one after the other, as it shares none.
        tuned_since: First release with kernels tuned for devices of makers that it was not written
            for; None where all are alike.
        release: Which is run; None takes the newest.
        stands_for: Software without a profile of its own that this one stands for, as typed; empty
            of a profile by its own name.
        why: What makes it the nearest.
        runs_on: Whether what it stands for runs on it, as a library does on its backend.
    """

    name: str
    title: str
    framework: str
    host: str = "torch"
    compiler: Literal["compiled", "tensorrt"] | None = None
    platforms: tuple[str, ...] = ()
    serves: bool = False
    is_own: bool = False
    writes_by_op: bool = False
    least_capability: float | None = None
    mixes_prompts: bool = False
    mixes_since: Release | None = None
    keeps_windows: bool = False
    windows_since: Release | None = None
    path_s: float | None = None
    request_s: float | None = None
    step_s: float | None = None
    overlaps_since: Release | None = None
    graphs_since: Release | None = None
    graphs_on: tuple[str, ...] = ()
    all_reduce: str | None = None
    driver_all_reduce: str | None = None
    max_requests: int = 256
    chunk_tokens: int = 8192
    large_max_requests: int | None = None
    large_chunk_tokens: int | None = None
    large_memory_bytes: float = math.inf
    large_capability: float = 0
    memory_frac: float
    leaves_weights: bool = False
    reserves_answers: bool = False
    buckets: bool = True
    narrow_cache_of: tuple[str, ...] = ()
    widens_fp8_capability: float | None = None
    formats: tuple[str, ...] = ()
    log_sigma: float = 0
    is_portable: bool = False
    splits_layers: bool = False
    tuned_since: Release | None = None
    release: Release | None = None
    stands_for: str = ""
    why: str = ""
    runs_on: bool = False

    def __str__(self) -> str:
        """As `find_engine` reads it."""
        release = "" if self.release is None else " {}.{}".format(*self.release)
        return f"{self.name}{release}"

    @property
    def dispatcher(self) -> str:
        """Whose dispatch applies to its release; one that nobody states is later than the first."""
        release = self.release or UNSTATED
        is_stated = release > UNSTATED
        return LAUNCHES if is_stated and release < (self.graphs_since or UNSTATED) else self.host

    @property
    def only_answers(self) -> bool:
        """Whether it runs what is trained and trains nothing."""
        return self.serves or self.is_own

    @property
    def overlaps(self) -> bool:
        """Whether the host of its release works beside the device."""
        if self.overlaps_since is None:
            return False
        return self.release is None or self.release >= self.overlaps_since

    @property
    def mixes(self) -> bool:
        """Whether steps of its release that write tokens read a prompt too."""
        return self.mixes_prompts and self._is_since(self.mixes_since)

    @property
    def rolls(self) -> bool:
        """Whether layers of its release keep and read no more than the window that they have."""
        return self.keeps_windows and self._is_since(self.windows_since)

    def _is_since(self, first: Release | None) -> bool:
        return self.release is None or self.release >= (first or UNSTATED)

    def room_bytes(self, limits: StepLimits, capacity_bytes: float, fixed_bytes: float) -> float:
        """What is left for the cache on a device; below zero where weights do not fit.

        Args:
            limits: What the engine is told.
            capacity_bytes: Of the device.
            fixed_bytes: Of weights and workspace.
        """
        if self.leaves_weights:
            return limits.memory_frac * (capacity_bytes - fixed_bytes)
        return limits.memory_frac * capacity_bytes - fixed_bytes

    @property
    def kernels(self) -> Literal["tuned", "early", "portable"]:
        """Which kernels its release has, in the words of a configuration."""
        if self.is_portable:
            return "portable"
        if self.release is None or self.tuned_since is None:
            return "tuned"
        return "early" if self.release < self.tuned_since else "tuned"

    def limits_on(self, device: Device) -> StepLimits:
        """What it puts into a step on a device."""
        capability = device.compute_capability
        is_large = (device.memory_bytes or 0) >= self.large_memory_bytes
        is_large &= capability is None or float(capability) >= self.large_capability
        large = (self.large_max_requests, self.large_chunk_tokens) if is_large else (None, None)
        return StepLimits(
            max_requests=large[0] or self.max_requests,
            chunk_tokens=large[1] or self.chunk_tokens,
            memory_frac=self.memory_frac,
        )

    def on(self, device: Device) -> EngineProfile:
        """The same as it launches and fills its steps on a device, wherever it is asked next."""
        limits = self.limits_on(device)
        own = device.generation.platform
        is_driven = own in _OWN_DRIVERS
        replays = not (is_driven and self.graphs_on) or own in self.graphs_on
        return replace(
            self,
            host=self.host if replays else LAUNCHES,
            all_reduce=self.driver_all_reduce if is_driven else self.all_reduce,
            max_requests=limits.max_requests,
            chunk_tokens=limits.chunk_tokens,
            large_max_requests=None,
            large_chunk_tokens=None,
        )

    def serves_on(self, device: Device, platform: str) -> bool:
        """Whether it has kernels for a device by what drives it, which may be its platform."""
        own = device.generation.platform
        if self.platforms and (own if own in _OWN_DRIVERS else platform) not in self.platforms:
            return False
        if platform != "cuda" or self.least_capability is None:
            return True
        return _reaches(device, self.least_capability)

    def kept_precision(self, precision: str, device: Device) -> str:
        """What a precision is on a device: weights alone in 8 bits where no unit multiplies FP8."""
        least = self.widens_fp8_capability
        has_units = find_precision(precision).peak_key in device.peak_flop_per_s
        if precision != "fp8" or has_units or least is None or not _reaches(device, least):
            return precision
        return "int8"


def _reaches(device: Device, capability: float) -> bool:
    return device.compute_capability is not None and float(device.compute_capability) >= capability


#: How a profile may be spelled, and the profile.
_Spelled: TypeAlias = tuple[re.Pattern[str], EngineProfile]


def no_kernels(engine: EngineProfile, device: Device) -> str:
    """Why an engine does not serve on a device."""
    return f"{engine.title} has no kernels for {device.name} that are modelled"


def find_engine(name: str) -> EngineProfile:
    """The profile of that name, of its newest release unless one is named.

    Software without a profile gets the one that is nearest in kind, which then says so.

    Raises:
        UnknownNameError: No such profile, and none is known to be like it.

    >>> find_engine("vLLM").name, find_engine("TRT-LLM").title, find_engine("tensorrt_llm").name
    ('vllm', 'TensorRT-LLM', 'trtllm')
    >>> find_engine("Ollama").name, find_engine("Ollama").stands_for
    ('llamacpp', 'Ollama')
    """
    for spelling, profile in _likely_first(name):
        if found := _spelled_so(spelling, name):
            return _of_release(profile, found)
    for family, row in _families():
        if _spelled_so(family, name):
            return replace(
                engines()[row["nearest"]], stands_for=name.strip(), why=row["why"],
                runs_on=row["runs_on"] == "yes",
            )  # fmt: skip
    known = {**engines(), **{profile.name: profile for _, profile in _added()}}
    raise UnknownNameError.from_name("framework", name, sorted(known))


def _spelled_so(spelling: re.Pattern[str], name: str) -> re.Match[str] | None:
    """Whether a name is of a spelling, which it may write as a Python module does."""
    name = name.strip()
    return spelling.fullmatch(name) or spelling.fullmatch(name.replace("_", "-"))


@cache
def _families() -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """Software without a profile of its own, and which is nearest in kind."""
    rows = shipped_rows("stack", "engine_families.csv")
    return tuple((re.compile(row["pattern"], re.IGNORECASE), row) for row in rows)


def engine_of_format(name: str) -> str:
    """The engine that serves weights of a format unless another is named; empty where all may.

    >>> engine_of_format("Q4_K_M"), engine_of_format("fp8")
    ('llamacpp', '')
    """
    found = (one.name for one in engines().values() if name.lower() in one.formats)
    return next(found, "")


def nearest_in(text: str) -> EngineProfile | None:
    """The engine that stands for software without a profile, by its name and its release.

    >>> nearest_in("Ollama").name, nearest_in("MLX").name, nearest_in("diffusers") is None
    ('llamacpp', 'llamacpp', True)
    """
    for family, row in _families():
        if re.fullmatch(f"(?:{family.pattern}){_RELEASE}", text.strip(), re.IGNORECASE):
            nearest = engines()[row["nearest"]]
            return nearest if nearest.serves else None
    return None


def runs_models(name: str) -> bool:
    """Whether software of that name runs trained models, with or without a profile of its own.

    >>> runs_models("diffusers"), runs_models("torchtune")
    (True, False)
    """
    return is_engine(name) or any(_spelled_so(family, name) for family, _ in _families())


def is_engine(name: str) -> bool:
    """Whether a profile has that name.

    >>> is_engine("vLLM"), is_engine("torchtune")
    (True, False)
    """
    return any(_spelled_so(spelling, name) for spelling, _ in _likely_first(name))


def engine_in(text: str) -> EngineProfile | None:
    """The inference engine that a longer text tells of, with the release that follows its name.

    >>> [engine_in(text).name for text in ("Nvidia TRT-LLM", "MLPerf; vLLM")]
    ['trtllm', 'vllm']
    >>> engine_in("PyTorch") is None
    True
    """
    is_shipped = any(spelling.fullmatch(text.strip()) for spelling, _ in _spellings())
    for spelling, profile in _spellings() if is_shipped else _shipped_then_added():
        if profile.serves and (found := spelling.search(text)):
            return _of_release(profile, found)
    return None


@cache
def engines() -> dict[str, EngineProfile]:
    """Every profile by its name."""
    return {name: _profile(name, row) for name, row in _tables().items()}


@cache
def shipped_engine(name: str) -> EngineProfile | None:
    """The profile of exactly that name, without the others; None where there is none."""
    row = _tables().get(name)
    return None if row is None else _profile(name, row)


def _spellings() -> Iterator[_Spelled]:
    """Each profile by its name, and a release behind it; compiled as far as they are looked at."""
    return map(_shipped, _tables())


@cache
def _shipped(name: str) -> _Spelled:
    return _spelled(name, _tables()[name])


@cache
def _added() -> tuple[_Spelled, ...]:
    """The same of plug-ins."""
    found: list[_Spelled] = []
    for path in plugin_files("engines", _ENGINES):
        try:
            rows = tomllib.loads(path.read_text(encoding="utf-8"))
            found += [_spelled(name, row) for name, row in rows.items()]
        except (tomllib.TOMLDecodeError, TypeError, KeyError, re.error) as error:
            raise InvalidInputError(
                f"`{path}` of a plug-in is no table of engines: {error}",
                hint="correct or uninstall it; docs/how-to/write-a-plug-in.md shows what it holds",
            ) from None
    return tuple(found)


def _shipped_then_added() -> Iterator[_Spelled]:
    """Plug-ins are looked up only where nothing shipped has the name."""
    yield from _spellings()
    yield from _added()


def _likely_first(name: str) -> Iterator[_Spelled]:
    """The profile that is called so, whose own name is one of its spellings, before all."""
    if name in _tables():
        yield _shipped(name)
    yield from _shipped_then_added()


def _spelled(name: str, row: dict[str, Any]) -> _Spelled:
    spelling = re.compile(f"(?:{row['spelling']}){_RELEASE}", re.IGNORECASE)
    return spelling, _profile(name, row)


def _of_release(profile: EngineProfile, found: re.Match[str]) -> EngineProfile:
    return replace(profile, release=_release(found.group("release") or ""))


def _tables() -> Mapping[str, Any]:
    return shipped_toml("stack", _ENGINES)


def _profile(name: str, row: dict[str, Any]) -> EngineProfile:
    facts = {key: value for key, value in row.items() if key not in ("spelling", "source")}
    for names in ("platforms", "narrow_cache_of", "formats", "graphs_on"):
        facts[names] = tuple(row.get(names, ()))
    facts.setdefault("memory_frac", _tables()[USUAL_ENGINE]["memory_frac"])
    for since in (
        "overlaps_since",
        "graphs_since",
        "tuned_since",
        "mixes_since",
        "windows_since",
    ):
        facts[since] = _release(row.get(since, ""))
    return EngineProfile(name=name, **facts)


def _release(text: str) -> Release | None:
    """Major and minor number; None of a text without."""
    major, _, rest = text.partition(".")
    return (int(major), int(rest.partition(".")[0])) if rest else None
