"""What one rank computes: the passes of a job on one device each, for devices × points at once.

Shape legend: D devices, P points; rows of a table are all points of the first device, then of the
next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from itertools import repeat

import numpy as np

from paceline.catalog.entities import Device
from paceline.columns import take_rows
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError, MissingFactError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray, Graph, IntArray, Owner
from paceline.model.graph.rows import holds_from
from paceline.model.graph.workload import Pass, Workload
from paceline.model.lowering import lower
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.model.served_items import DRAFT_PROMPT, DRAFT_TOKEN
from paceline.model.table_updates import is_mostly_tables
from paceline.parallelism.replicas.data_parallel_work import LoweredStep
from paceline.parallelism.serving.answers import answers
from paceline.parallelism.serving.batching import ServingRuns
from paceline.parallelism.serving.engine import TOKEN, asked_passes, predicted_passes
from paceline.parallelism.serving.memory import (
    answers_memory_bytes,
    in_turn_memory_bytes,
    stage_memory_bytes,
)
from paceline.parallelism.serving.pipeline import fullest_frac
from paceline.parallelism.split import split
from paceline.parallelism.split.rank_graph import RankGraph
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import PassPrediction, Points
from paceline.prediction.step.one_pass import abstentions, predict_pass
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.simulation.cases import grouped
from paceline.simulation.job import Job
from paceline.simulation.windows import (
    PassByLength,
    beyond_window,
    check_prompts,
    joined,
    tables_of,
)
from paceline.stack.engines import EngineProfile
from paceline.values import dataclass

#: Narrow weights take less than this share of wide ones (embeddings and norms stay wide).
_NARROW_FRAC = 0.85
#: Columns that passes add up, by the name that `PassPrediction` has for them.
_SUMMED = {
    "step_low_s": "low_s", "step_s": "mid_s", "step_high_s": "high_s", "device_s": "device_s",
    "host_s": "host_s", "wait_s": "wait_s", "backward_s": "backward_s", "update_s": "update_s",
    "compute_bound_s": "compute_bound_s", "roofline_s": "roofline_s", "energy_j": "energy_j",
}  # fmt: skip
#: Columns of which the largest of any pass counts.
_LARGEST = ("memory_low_bytes", "memory_mid_bytes", "memory_high_bytes")
_NOTHING = ("exposed_s", "communication_s", "tensor_s", "bubble_s", "sharing_log_sigma")
_HINT = "add it to a file of your own devices"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankPasses:
    """The passes of a job as one rank runs them.

    Attributes:
        splits: Each pass as cut for the ranks that share layers, by name.
        lowered: The same in one configuration.
        host: Whose dispatch applies.
        engine: That serves; None where passes run as they are.
        stages: Devices that hold the layers one after the other, each a part of them.
        in_flight: Batches of requests that follow one another through these; one where they work
            in turn.
        far: Passes of requests as they are beyond the window of attention, where caches roll.
    """

    workload: Workload
    splits: Mapping[str, RankGraph]
    lowered: Mapping[str, LoweredPass]
    host: str
    engine: EngineProfile | None
    stages: int = 1
    in_flight: int = 1
    far: Mapping[str, LoweredPass] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, *, tensor: int = 1) -> RankPasses:
        """Every pass of one rank of a job.

        Args:
            job: The passes, and how a rank runs them.
            tensor: Ranks that share each layer; of an engine that shares none, those that hold the
                layers one after the other.

        Raises:
            InvalidInputError: The model cannot be shared so, or the precision promises narrow
                weights and the lowering keeps wide ones.
        """
        workload, engine, how = job.workload, job.engine, job.how
        stages = tensor if engine is not None and engine.splits_layers else 1
        tensor = 1 if stages > 1 else tensor
        in_flight = job.strategy.size("pp") if engine is not None else 1
        if engine is not None and workload.encodes:
            raise InvalidInputError(
                f"how {engine.title} serves encoder-decoders is not modelled",
                hint="leave the profile out: they run as plain batches",
            )
        splits, lowered = _lowered(workload, _shape(job, tensor), how)
        first = workload.passes[0]
        adapters_bytes = _adapters_bytes(splits[first.name].graph, lowered[first.name])
        _check_weights(first.graph, lowered[first.name], adapters_bytes)
        return cls(
            workload=workload, splits=splits, lowered=lowered, host=job.host, engine=engine,
            stages=stages * in_flight, in_flight=in_flight,
            far=beyond_window(workload, _shape(job, tensor), how, engine),
        )  # fmt: skip

    @property
    def step(self) -> LoweredStep:
        """What runs on a device, in order."""
        return LoweredStep.of_passes(self.workload, self.lowered)

    @property
    def shape(self) -> SplitShape:
        """How ranks share the passes."""
        return next(iter(self.splits.values())).shape

    @property
    def optimizer_bytes(self) -> float:
        """Optimizer state with master weights, wherever it is kept."""
        how = replace(self.step.configuration, offload="none")
        lowered = _lowered(self.workload, self.shape, how)[1]
        owned = LoweredStep.of_passes(self.workload, lowered).largest.memory.by_owner
        return float(owned[:, [Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT], 0].sum(axis=1).max())

    @property
    def num_sharing(self) -> int:
        """Ranks that hold a model together."""
        return self.shape.num_ranks * self.in_flight

    @property
    def fullest_frac(self) -> float:
        """Of the layers, what the fullest stage has."""
        if self.in_flight == 1:
            return 1.0 / self.stages
        return fullest_frac(self.workload.passes[0].graph, self.stages)

    def runs(self, asked: Lengths) -> ServingRuns:
        """What an engine is asked, with the groups that take each step together."""
        return asked.runs_of(self.workload, groups=self.shape.experts * self.in_flight)

    @property
    def adapter_bytes(self) -> float:
        """One adapter, as wide as activations; zero without."""
        first = self.workload.passes[0].name
        held = self.lowered[first].configuration.num_adapters
        every = _adapters_bytes(self.splits[first].graph, self.lowered[first])
        return every / held if held else 0.0

    def by_length(self, name: str) -> PassByLength:
        """A pass as it is up to the window of its layers and beyond it."""
        near, far, window = self.lowered[name], self.far.get(name), self.workload.window
        if far is None or window is None:
            return PassByLength(near=near)
        graph = self.splits[name].graph
        return PassByLength(near=near, far=far, far_from=holds_from(graph, window))

    @property
    def is_generation(self) -> bool:
        """Whether requests are answered token by token."""
        return "decode" in self.lowered

    def told_on(self, devices: Sequence[Device]) -> list[tuple[RankPasses, IntArray]]:
        """The passes of an engine that knows its habits on a device, with the devices of each.

        Returns:
            With rows of ``devices``, on which they are alike; all of them where none serves.
        """
        engine = self.engine
        if engine is None:
            return [(self, np.arange(len(devices)))]
        return [
            (replace(self, engine=told, host=told.dispatcher), rows)
            for told, rows in grouped([engine.on(one) for one in devices]).items()
        ]

    def decode_steps(self, output: FloatArray) -> FloatArray:
        """Steps that write so many tokens: reading a prompt writes the first, encoding none."""
        return output if self.workload.encodes else np.maximum(output - 1.0, 0.0)

    def idle_bytes(self, one: Pass) -> float:
        """Weights of the networks that wait in memory while a pass runs."""
        return sum(held for network, held in self._networks().items() if network != one.network)

    @property
    def beside_bytes(self) -> float:
        """Weights of other networks that an answer takes, such as encoders of its text."""
        is_answer = self.workload.task == "infer"
        return sum(held for network, held in self._networks().items() if network and is_answer)

    def weights_bytes(self, largest: LoweredPass) -> float:
        """Weights of its pass with most of them, or of the model and all that stand beside it."""
        own, beside = self._networks().get("", 0.0), self.beside_bytes
        return (own if own and beside else largest.parameter_bytes) * self.fullest_frac + beside

    def _networks(self) -> dict[str, float]:
        """Weights by network, the model's own without a name."""
        return {p.network: self.lowered[p.name].parameter_bytes for p in self.workload.passes}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lengths:
    """What a rank is asked at each point, (P,).

    Attributes:
        batch: Items at a time.
        seq: Tokens of a sequence.
        prompt: Of a request, where answers are generated.
        output: Of its answer.
        rounds: Requests of one place in flight that come one after the other; one if all come at
            once, infinite if they come one by one.
    """

    batch: FloatArray
    seq: FloatArray
    prompt: FloatArray
    output: FloatArray
    rounds: FloatArray

    def __len__(self) -> int:
        """Number of points."""
        return len(self.batch)

    def take(self, rows: IntArray | slice) -> Lengths:
        """Some points; they may repeat."""
        return take_rows(self, rows)

    def runs_of(self, workload: Workload, *, groups: int = 1) -> ServingRuns:
        """The same of an engine that answers a workload: as many requests in flight as items.

        Args:
            workload: What is answered.
            groups: That take each step together, each with so many.
        """
        return ServingRuns(
            concurrency=self.batch, input_tokens=self.prompt, output_tokens=self.output,
            rounds=self.rounds, prefix_share=workload.prefix_share,
            tokens_per_step=workload.tokens_per_step, tokens_checked=workload.tokens_checked,
            groups=groups,
        )  # fmt: skip


def rank_steps(
    passes: RankPasses, devices: DeviceTable, asked: Lengths, *, calibration: Calibration | None
) -> Steps:
    """One step of a rank on its device, without other ranks; (D · P) rows.

    Args:
        passes: What runs.
        devices: Where, D of them.
        asked: At which points, P of them.
        calibration: Of the predictor; the built-in one if None.

    Raises:
        UnknownNameError: Nothing is known of the profile's host.
        InvalidInputError: Only an engine answers so, and none serves; or prompts have another
            length than the one at which the passes are known.
    """
    if passes.engine is None and passes.workload.needs_engine:
        raise InvalidInputError(
            "prefixes that are found, adapters by request and guessed tokens are what engines do, "
            "and a loop runs plain batches",
            hint="write --framework vllm, or name devices that it serves on",
        )
    check_prompts(passes.workload, asked.prompt)
    parts = []
    for told, rows in passes.told_on(devices.entities):
        alike, wanted = devices.take(rows), _asked_of_passes(told, asked)
        by_length = [(told.by_length(one.name), points) for one, points in wanted]
        tables = tables_of(by_length)
        predicted = map(
            partial(predict_pass, calibration=calibration, framework=told.host),
            [table for table, _ in tables],
            repeat(alike),
            [points for _, points in tables],
        )
        found = joined(by_length, list(predicted))
        places = (rows[:, None] * len(asked) + np.arange(len(asked))).ravel()
        parts.append((places, _steps_of(told, alike, asked, wanted, found)))
    return Steps.joined(parts, len(devices) * len(asked))


def _steps_of(
    passes: RankPasses, devices: DeviceTable, asked: Lengths,
    wanted: Sequence[tuple[Pass, Points]], found: Sequence[PassPrediction],
) -> Steps:  # fmt: skip
    """The steps that predicted passes make, on devices on which an engine has the same habits."""
    if passes.engine is not None:
        columns = _served(passes, passes.engine, found, passes.runs(asked))
    elif passes.is_generation:
        columns = _generated(found[0], found[1], found[2], passes.decode_steps(asked.output))
    else:
        idle_bytes = [passes.idle_bytes(one) for one, _ in wanted]
        summed = _summed([one for one, _ in wanted], found, idle_bytes)
        columns = summed | _with_pipeline(passes, summed)
    largest, num_points = passes.step.largest, len(asked)
    reasons = [None if r is None else MissingFactError(r, hint=_HINT)
               for r in abstentions(largest, devices)]  # fmt: skip
    return Steps.of(
        len(devices) * num_points,
        columns
        | dict.fromkeys(_NOTHING, 0.0)
        | {
            "power_w": columns["energy_j"] / columns["step_s"],
            "device_log_sigma": columns["log_sigma"],
            "knowledge": np.repeat(found[0].knowledge, num_points),
            "parameter_bytes": passes.weights_bytes(largest),
            "optimizer_state_bytes": largest.optimizer_state_bytes,
            "adapter_bytes": passes.adapter_bytes,
            "reasons": np.repeat(np.array(reasons, dtype=object), num_points),
        },
    )


def _asked_of_passes(passes: RankPasses, asked: Lengths) -> list[tuple[Pass, Points]]:
    """What is predicted: passes with the points at which they are.

    A generation is a prompt, the mean step of its answer (decode is affine in the past length), and
    its last step, which has most in memory.
    """
    of_name = {one.name: one for one in passes.workload.passes}

    def at(name: str, length: FloatArray) -> tuple[Pass, Points]:
        return of_name[name], Points(batch=asked.batch, seq=length)

    if not passes.is_generation:
        return [at(name, asked.seq) for name, one in of_name.items() if one.runs_on == "device"]
    if passes.engine is not None:
        runs = passes.runs(asked)
        wanted = asked_passes(runs, passes.engine, guesses=DRAFT_TOKEN in of_name)
        return [(of_name[name], points) for name, points in wanted]
    prompt, output = asked.prompt, asked.output
    mean = prompt + (output - 1.0) / 2.0
    read = at(passes.workload.reads_by, prompt)
    return [read, at("decode", mean), at("decode", prompt + output)]


def rank_memory_bytes(
    passes: RankPasses, asked: Lengths
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Peak of a rank's process without its times, (P,): low, median and 95 % bound.

    Args:
        passes: What runs.
        asked: At which points; of answers, at their last tokens.
    """
    if passes.engine is not None:
        return _served_memory_bytes(passes, passes.engine, passes.runs(asked))
    length = asked.prompt + asked.output if passes.is_generation else asked.seq
    peaks = [
        passes.by_length(one.name).peak_bytes(asked.batch, length) + passes.idle_bytes(one)
        for one in passes.workload.passes
        if one.runs_on == "device"
    ]
    low, mid, high = np.max(peaks, axis=0)
    return low, mid, high


def _served_memory_bytes(
    passes: RankPasses, engine: EngineProfile, runs: ServingRuns
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Peak of a device of an engine: of all layers, or of those of the fullest stage."""

    def peaks(name: str, batch: FloatArray, seq: FloatArray) -> FloatArray:
        return passes.by_length(name).peak_bytes(batch, seq)

    asked = (peaks, passes.lowered, runs, runs.prompts_together(engine.chunk_tokens))
    if passes.in_flight > 1:
        low, mid, high = stage_memory_bytes(
            *asked, in_flight=passes.in_flight, fullest_frac=passes.fullest_frac
        )
        return low, mid, high
    found = answers_memory_bytes(*asked)
    if passes.stages > 1:
        found = in_turn_memory_bytes(peaks, found, passes.lowered[TOKEN], passes.stages)
    low, mid, high = found
    return low, mid, high


def cut(graph: Graph, tensor: int, *, is_served: bool) -> RankGraph:
    """A pass as one of the ranks runs it that share every layer, as engines do or as trainers.

    Raises:
        InvalidInputError: So many cannot share it.
    """
    shape = SplitShape.of_engine(tensor=tensor) if is_served else SplitShape(tensor=tensor)
    return split(graph, shape)


def _alone() -> SplitShape:
    """Of networks beside the model's own, which every rank runs as they are."""
    return SplitShape()


def _is_shared(one: Pass) -> bool:
    """Whether ranks share a pass: the model's own, and that of who guesses for it."""
    return not one.network or one.name in (DRAFT_PROMPT, DRAFT_TOKEN)


@lru_cache(maxsize=64)
def _lowered(
    workload: Workload, shape: SplitShape, how: Configuration
) -> tuple[dict[str, RankGraph], dict[str, LoweredPass]]:
    """Each pass by name, as it is cut and then lowered: searches and queues ask for the same."""
    splits = {
        one.name: split(one.graph, shape if _is_shared(one) else _alone())
        for one in workload.passes
    }
    base = replace(how, lora_rank=0, num_adapters=0) if how.num_adapters else how
    lowered = {
        one.name: lower(
            splits[one.name].graph, with_weight_format(one.graph, base if one.network else how)
        )
        for one in workload.passes
    }
    return splits, lowered


def _shape(job: Job, tensor: int) -> SplitShape:
    """How ranks share the passes of a job, as engines do or as the strategy says.

    Raises:
        InvalidInputError: An engine is asked to share what it does not.
    """
    stated = SplitShape.of(job.strategy)
    if job.workload.task != "infer":
        return SplitShape(tensor=tensor)
    if job.engine is None and job.strategy.size("pp") > 1:
        raise InvalidInputError(
            f"`{job.strategy}` has pipeline stages, which have no cost model in inference but in "
            "engines that write tokens",
            hint="share the model by `tp`, or its tokens by `cp`",
        )
    if job.engine is None:
        return replace(stated, tensor=tensor)
    if stated.sequence * stated.guidance > 1:
        raise InvalidInputError(
            f"`{job.strategy}` shares tokens, which {job.engine.title} is not known for",
            hint="share a model that is served by `tp`, its experts by `ep`, its layers by `pp`",
        )
    return SplitShape.of_engine(
        tensor=tensor, replicas=stated.experts,
        whole_experts="whole" in job.habits or stated.experts > 1,
    )  # fmt: skip


def _adapters_bytes(graph: Graph, lowered: LoweredPass) -> float:
    """Parameters beside those of the graph, as wide as activations: adapters, where one serves."""
    if not lowered.configuration.num_adapters:
        return 0.0
    stores = graph.storages
    own = float(stores.elements[stores.owner == Owner.PARAMETER, 0].sum())
    precision = find_precision(lowered.configuration.precision)
    return ELEMENT_BYTES[precision.activation_dtype] * (lowered.num_parameters - own)


def _check_weights(graph: Graph, lowered: LoweredPass, adapters_bytes: float) -> None:
    """Refuse a precision that promises narrow weights where the lowering kept them wide.

    Tables that are looked up stay wide and multiply nothing.
    """
    precision = find_precision(lowered.configuration.precision)
    is_training = len(lowered.gradient_ready) > 0
    half_bytes = ELEMENT_BYTES[precision.activation_dtype] * lowered.num_parameters - adapters_bytes
    is_narrow = ELEMENT_BYTES[precision.weight_dtype] < ELEMENT_BYTES[precision.activation_dtype]
    is_kept = lowered.parameter_bytes - adapters_bytes > _NARROW_FRAC * half_bytes
    if is_narrow and is_kept and not is_training and not is_mostly_tables(graph):
        in_8_bits = "--precision int8-full" if precision.name != "int8-full" else "it"
        raise InvalidInputError(
            f"weights in {precision.name} are not predicted for this model: most are no matrices",
            hint=f"use {in_8_bits} with --compiler compiled, or by --framework tensorrt, openvino "
            "or onnxruntime, which multiply in 8 bits; or take bf16 or fp16",
        )


def _summed(
    passes: Sequence[Pass], found: Sequence[PassPrediction], idle_bytes: Sequence[float]
) -> dict[str, FloatArray]:
    """Passes one after the other; the largest peak counts, and the longest pass binds.

    Weights of a pass's neighbours wait in memory, ``idle_bytes`` of them.
    """
    repeats = np.array([one.repeats for one in passes])

    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(one, name).ravel() for one in found]).astype(np.float64)

    held = np.array(idle_bytes)[:, None]
    pass_s = repeats[:, None] * stacked("mid_s")
    step_s = pass_s.sum(axis=0)
    longest = pass_s.argmax(axis=0)[None]
    log_sigma = (pass_s * stacked("log_sigma")).sum(axis=0) / step_s
    return {
        **{column: repeats @ stacked(name) for column, name in _SUMMED.items()},
        **{name: (stacked(name) + held).max(axis=0) for name in _LARGEST},
        "step_s": step_s,
        "per_token_s": step_s,
        "log_sigma": log_sigma if len(found) > 1 else stacked("log_sigma")[0],
        "bound": np.take_along_axis(stacked("bound"), longest, axis=0)[0],
        "flop": np.tile(repeats @ np.stack([one.flop for one in found]), len(found[0].mid_s)),
    }


def _with_pipeline(passes: RankPasses, summed: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Times and energy with the code around the passes, where they run op by op."""
    workload, first = passes.workload, next(iter(passes.lowered.values()))
    if not workload.beside_frac or first.configuration.compiler != "eager":
        return {}
    longer = ("step_s", "device_s", "host_s", "per_token_s", "energy_j")
    found = {name: summed[name] * (1.0 + workload.beside_frac) for name in longer}
    log_sigma = np.hypot(summed["log_sigma"], workload.beside_log_sigma)
    factor = np.exp(Z_80 * log_sigma)
    interval = {"step_low_s": found["step_s"] / factor, "step_high_s": found["step_s"] * factor}
    return found | interval | {"log_sigma": log_sigma}


def _served(
    passes: RankPasses, engine: EngineProfile, predictions: Sequence[PassPrediction],
    runs: ServingRuns,
) -> dict[str, FloatArray]:  # fmt: skip
    """All requests in flight of an engine, from their prompts to their last tokens."""
    speculation = passes.workload.speculation
    guesses = 0.0 if speculation is None else float(speculation.tokens)
    predicted = predicted_passes(runs, predictions, engine, num_guesses=guesses)
    found = answers(predicted, runs, engine)

    def total(name: str) -> FloatArray:
        first, others = predicted.summed(name)
        return np.asarray(runs.concurrency * first + runs.steps * others)

    memory = _served_memory_bytes(passes, engine, runs)
    tables = {
        **{column: total(name) for column, name in _SUMMED.items()},
        **dict(zip(_LARGEST, memory, strict=True)),
        "step_low_s": found.low_s,
        "step_s": found.times.request_s,
        "step_high_s": found.high_s,
        "per_token_s": found.times.per_token_s,
        "first_token_s": found.times.first_token_s,
        "prompt_s": found.passes.prompt_s,
        "token_s": found.passes.step_s,
        "weights_s": found.passes.weights_s,
        "draft_s": found.passes.draft_s,
        "energy_j": found.energy_j * passes.in_flight / passes.stages,
        "log_sigma": found.log_sigma,
        "bound": found.bound,
        "flop": found.flop * passes.in_flight / passes.stages,
    }
    shape = found.low_s.shape
    return {
        name: np.broadcast_to(np.asarray(table, dtype=np.float64), shape).ravel()
        for name, table in tables.items()
    }


def _generated(
    prefill: PassPrediction, decode: PassPrediction, last: PassPrediction, num_steps: FloatArray
) -> dict[str, FloatArray]:
    """A prompt read once and an answer written token by token, all requests of a batch together."""
    step_s = prefill.mid_s + num_steps * decode.mid_s
    decode_frac = num_steps * decode.mid_s / step_s

    def total(name: str) -> FloatArray:
        return np.asarray(getattr(prefill, name) + num_steps * getattr(decode, name))

    tables = {
        **{column: total(name) for column, name in _SUMMED.items()},
        **{name: np.maximum(getattr(prefill, name), getattr(last, name)) for name in _LARGEST},
        "per_token_s": decode.mid_s,
        "first_token_s": prefill.mid_s,
        "log_sigma": decode_frac * decode.log_sigma + (1.0 - decode_frac) * prefill.log_sigma,
        "bound": np.where(decode_frac > 0.5, decode.bound, prefill.bound),
        "flop": np.broadcast_to(total("flop"), step_s.shape),
    }
    return {name: np.asarray(table, dtype=np.float64).ravel() for name, table in tables.items()}
