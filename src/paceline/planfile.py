"""The plan file: the one thing that `run`, `deploy` and `report` read.

Plain data with a version and no behaviour. `planning.goal.files` reads and writes it as YAML and
publishes its JSON schema. Units are SI and stand in the key names.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from paceline.values import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Bound of a number, which pydantic checks; annotated-types takes a tenth of `predict`."""

    bound: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The schema of the number, with its bound."""
        return {**handler(source), "ge": self.bound}


@dataclass(frozen=True, slots=True)
class Above:
    """The same, where the bound itself is too little."""

    bound: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The schema of the number, with its bound."""
        return {**handler(source), "gt": self.bound}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its 80 % interval."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWorkload:
    """The job.

    Attributes:
        model: As the user named it: a zoo name, ``torchvision:NAME``, ``package.module:function``.
        title: As printed.
        task: Training or inference.
        sample_unit: What throughput counts.
        seq: Sequence length; 1 where there is none.
        num_parameters: All parameters.
        num_samples: Samples (in ``sample_unit``) per epoch; None if only rates were asked for.
        num_epochs: Passes over them.
        optimizer: Name; None in inference.
        input_description: As printed, such as ``224×224``.
        job: The amount of work in words; empty if only rates were asked for.
        prompt_tokens: Of one request to a language model; None where it does not apply.
        output_tokens: Of one request to a language model; None where it does not apply.
        concurrency: Requests in flight at once; None where it does not apply.
        requests_per_s: Requests to be served; None where it does not apply.
    """

    model: str
    title: str
    task: Literal["train", "infer"]
    sample_unit: str
    seq: int
    num_parameters: Annotated[int, AtLeast(0)]
    num_samples: float | None
    num_epochs: float | None
    optimizer: str | None
    input_description: str = ""
    job: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    requests_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStack:
    """The software to run with.

    Attributes:
        framework: ``torch``, ``tensorflow``, ``jax``.
        framework_version: Exact release.
        platform: ``cuda``, ``rocm``, ``cpu``, ``tpu``.
        platform_version: CUDA or ROCm release; None on CPU.
        python_version: Minor version such as ``3.12``.
        min_driver: Oldest driver that runs it; None where it does not apply.
    """

    framework: str
    framework_version: str
    platform: str
    platform_version: str | None
    python_version: str
    min_driver: str | None


def term_words(*, is_spot: bool, term: str) -> str:
    """How a machine is paid, as it stands behind its name; empty on demand.

    >>> term_words(is_spot=False, term="reserved-1y")
    ' reserved-1y'
    """
    if is_spot:
        return " spot"
    return "" if term == "on-demand" else f" {term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlace:
    """Where it runs and at what price.

    Attributes:
        offer: ``Offer.name`` or the name of an owned machine.
        cloud: Provider, or ``own``.
        instance_type: The provider's name of the machine.
        region: Region of the price.
        is_spot: Whether the interruptible price is meant.
        term: How it is paid else: ``on-demand``, ``reserved-1y`` or ``reserved-3y``.
        usd_per_hour: Price of all nodes together.
        priced_on: ISO day of that price; None for owned machines.
        source: Where the price was read.
        device: ``Device.name``; of two kinds together, such as ``2×Device.name + 4×Device.name``.
        num_nodes: Machines.
        devices_per_node: Devices used in each.
        num_vcpus_per_node: Virtual CPUs; None if unknown.
        host_memory_bytes_per_node: Main memory; None if unknown.
        interconnect: Device-to-device link inside a node.
        network_bytes_per_s: Network of one node; None if unknown.
        interruption_frac_per_month: Chance band of spot interruption; None if unknown.
    """

    offer: str
    cloud: str
    instance_type: str
    region: str
    is_spot: bool
    usd_per_hour: Annotated[float, AtLeast(0)]
    priced_on: str | None
    source: str
    device: str
    num_nodes: Annotated[int, AtLeast(1)]
    devices_per_node: Annotated[float, Above(0)]
    num_vcpus_per_node: Annotated[int, AtLeast(1)] | None
    host_memory_bytes_per_node: Annotated[float, Above(0)] | None
    interconnect: str
    network_bytes_per_s: float | None
    interruption_frac_per_month: tuple[float, float] | None
    term: Literal["on-demand", "reserved-1y", "reserved-3y"] = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShare:
    """What devices of one kind do of each batch, where two kinds share it.

    Attributes:
        device: ``Device.name``.
        num_devices: Of this kind.
        items_per_device: Items per device and step.
    """

    device: str
    num_devices: int
    items_per_device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """What requests see of a service at one load.

    Attributes:
        requests_per_s: That come.
        ttft_s: To the first token, of the service's percentile of requests; None of answers that
            come whole.
        latency_s: Per token, or of a whole answer, likewise.
        request_s: From a request to the end of its answer, likewise.
    """

    requests_per_s: float
    ttft_s: float | None
    latency_s: float
    request_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedService:
    """How requests that come at a rate are answered, as their queue was simulated.

    Attributes:
        engine: Name and release as ``--framework`` takes them; empty of a loop that answers those
            who wait in whole batches.
        num_replicas: Of the model, behind a router.
        num_ranks: Devices that share each of them.
        max_requests: Sequences that each holds at once; None without an engine, as the next two.
        chunk_tokens: Tokens of one of its steps.
        memory_frac: Of a device's memory, for weights, workspace and cache.
        percentile: Of requests, that latency and time to the first token are told of.
        requests_per_s: That come.
        capacity_requests_per_s: That all replicas complete at most.
        length_spread: Standard deviation of prompts and answers over their mean.
        cache_format: Of keys and values where it is narrower than that of activations: ``fp8``.
        weight_format: Of weights that stay as they were asked for where products are wider: ``fp8``
            on devices without units for it; empty else.
        prefix_share: Of each prompt, what is found in the cache.
        adapters: Of which each request asks for one, as ``--adapters`` takes them; empty without.
        speculation: How tokens are guessed, as ``--speculate`` takes it; empty where none are.
        settings: The one setting to change with its gain, and a narrower format if that gains more;
            of the first choice, as the next.
        curve: What requests see from few of them to as many as can be answered.
    """

    engine: str
    num_replicas: Annotated[int, AtLeast(1)]
    num_ranks: Annotated[int, AtLeast(1)]
    max_requests: int | None
    chunk_tokens: int | None
    memory_frac: float | None
    percentile: int
    requests_per_s: float
    capacity_requests_per_s: Interval
    length_spread: float = 0.0
    cache_format: str = ""
    weight_format: str = ""
    prefix_share: float = 0.0
    adapters: str = ""
    speculation: str = ""
    settings: tuple[str, ...] = ()
    curve: tuple[LoadPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChoice:
    """One complete plan: place × strategy × batch × precision × compiler × stack, with its figures.

    Attributes:
        place: Where.
        strategy: Canonical strategy string, such as ``dp8`` or ``dp4.tp2@1f1b/mb8``.
        batch_per_device: Items per device and step (all microbatches together).
        microbatches: Gradient-accumulation steps.
        global_batch: Items per optimizer step over all devices.
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager`` or ``compiled`` …
        checkpointing: What is recomputed.
        channels_last: Memory layout of convolutions.
        stack: Software; None where no framework release is known.
        step_s: Step time.
        samples_per_s: Throughput of the whole job in ``sample_unit``.
        time_s: Time to done; None if only rates were asked for.
        cost_usd: Cost to done; None if only rates were asked for.
        usd_per_million_samples: Running cost per million of ``sample_unit``.
        energy_j_per_sample: Device energy per ``sample_unit``; None where the power is unknown.
        energy_interval_j_per_sample: Of that; None likewise.
        power_w: Mean power of all devices; None likewise.
        memory_bytes: Peak device memory: low, median, and the 95 % bound.
        memory_capacity_bytes: What one device has.
        parallel_efficiency_frac: Throughput against so many single devices.
        latency_s: Time per output token, or of one batch, or of an answer that comes whole to a
            request; None in training.
        ttft_s: Time to first token; None where it does not apply.
        chance_time: Chance to meet the deadline or latency; None without one.
        chance_cost: Chance to stay in budget; None without one.
        chance_memory: Chance to fit.
        bound: What holds it back, as a word.
        reason: One sentence: why it stands here.
        meets_goal: Whether every constraint holds at the stated chance; a choice that does not
            is shown because it is cheaper or faster and nearly does.
        label: ``cheapest``, ``fastest``, ``pinned`` …; empty for the rest.
        remark: Short note behind the row, such as ``too unsure for 24 h``; may be empty.
        notes: Licence, end of support and the like, one sentence each.
        num_devices: Devices of all nodes together.
        optimizer_steps: Exact number of them; None in inference or without an amount of work.
        exposed_communication_s: Of a step, time that communication adds.
        mfu_frac: Model FLOP per second over the devices' dense peak; None where no peak is known.
        shares: Of two kinds of device that share each batch; empty where all do the same, else
            ``batch_per_device`` is their mean.
        service: How requests that come at a rate are answered; None of all else.
    """

    place: PlannedPlace
    strategy: str
    batch_per_device: Annotated[int, AtLeast(1)]
    microbatches: Annotated[int, AtLeast(1)]
    global_batch: Annotated[int, AtLeast(1)]
    precision: str
    compiler: str
    checkpointing: str
    channels_last: bool
    stack: PlannedStack | None
    step_s: Interval
    samples_per_s: Interval
    time_s: Interval | None
    cost_usd: Interval | None
    usd_per_million_samples: Interval
    energy_j_per_sample: float | None
    power_w: float | None
    memory_bytes: Interval
    memory_capacity_bytes: float
    parallel_efficiency_frac: float
    latency_s: Interval | None
    ttft_s: Interval | None
    chance_time: float | None
    chance_cost: float | None
    chance_memory: float
    bound: str
    reason: str
    meets_goal: bool = True
    label: str = ""
    remark: str = ""
    notes: tuple[str, ...] = ()
    num_devices: Annotated[int, AtLeast(1)] = 1
    optimizer_steps: int | None = None
    exposed_communication_s: float = 0.0
    mfu_frac: float | None = None
    shares: tuple[PlannedShare, ...] = ()
    energy_interval_j_per_sample: Interval | None = None
    service: PlannedService | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedChoice:
    """What is excluded, and why.

    Attributes:
        name: Offer, device or group of them.
        reason: One sentence.
        wins_below_usd_per_hour: The price at which it would be first; None if none would do.
        kind: Why, as a word: ``stale price``, ``no price``, ``retired``, ``no framework``,
            ``does not fit``, ``misses the deadline``, ``over the budget``, ``filtered`` …
        num_rejected: How many offers this line stands for.
    """

    name: str
    reason: str
    wins_below_usd_per_hour: float | None = None
    kind: str = ""
    num_rejected: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """One point of the scaling curve of the first choice's device.

    Attributes:
        num_devices: Devices of all nodes together.
        offer: Offer that holds them.
        samples_per_s: Best throughput at that count.
        efficiency_frac: Throughput against so many single devices.
        usd_per_million_samples: Running cost per million of ``sample_unit``; None without a price.
        bound: What holds the job back there.
    """

    num_devices: int
    offer: str
    samples_per_s: float
    efficiency_frac: float
    usd_per_million_samples: float | None
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFigure:
    """A figure of the first choice with where it comes from (``--explain``).

    Attributes:
        name: Path of the figure, such as ``choices[0].cost_usd``.
        value: As printed, with its unit.
        formula: How it was made from the figures below; empty for a fact.
        inputs: Names of the figures it was made from.
        origin: ``source`` for a fact that was read, ``assumption``, or ``computed``.
        source: Where a fact was read, or the assumption in words.
        number: The value in SI units; None where it is no number.
    """

    name: str
    value: str
    formula: str
    inputs: tuple[str, ...]
    origin: Literal["source", "assumption", "computed"]
    source: str
    number: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A ranked plan; the first choice is the one that `run` and `deploy` take unless told.

    Attributes:
        schema_version: Of this layout.
        paceline_version: Of the program that wrote it.
        catalog_version: Of the facts.
        calibration: Of the predictor.
        created_on: ISO day that prices were judged on.
        assumptions: Printed first, one sentence each.
        workload: The job.
        goal: The goal as given, option by option.
        choices: Best first.
        rejected: What is excluded.
        turns: What price or deadline would change the answer, one sentence each.
        goal_text: The goal in words, such as ``done within 24 h (chance ≥ 80 %), cheapest first``.
        why: Why the first choice is first and why the runner-up lost, one sentence each.
        scaling: Scaling curve of the first choice's device, by number of devices.
        knee: Where more devices stop paying, and what holds them back; may be empty.
        rent_or_buy: When an own machine would pay; may be empty.
        emissions: Electricity that the first choice takes, and what it emits; may be empty.
        next_commands: What to type next, most useful first.
        num_candidates: Candidates that were evaluated.
        explanation: Where every figure of the first choice comes from.
    """

    schema_version: int
    paceline_version: str
    catalog_version: str
    calibration: str
    created_on: str
    assumptions: tuple[str, ...]
    workload: PlannedWorkload
    goal: dict[str, str]
    choices: tuple[PlannedChoice, ...]
    rejected: tuple[RejectedChoice, ...] = field(default=())
    turns: tuple[str, ...] = field(default=())
    goal_text: str = ""
    why: tuple[str, ...] = ()
    scaling: tuple[ScalingPoint, ...] = ()
    knee: str = ""
    rent_or_buy: str = ""
    emissions: str = ""
    next_commands: tuple[str, ...] = ()
    num_candidates: int = 0
    explanation: tuple[TracedFigure, ...] = ()
