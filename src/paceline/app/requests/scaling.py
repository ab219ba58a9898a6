"""What a user asks about scaling, made into a cluster, device counts and a batch rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from datetime import date
from pathlib import Path
from typing import Any, Unpack

from paceline.app.goal_options import JOB_OPTIONS, ClusterOptions
from paceline.app.option_table import option_texts
from paceline.app.progress import progress
from paceline.app.requests.machines import links_of, named_offer, offer_called, offer_with
from paceline.app.requests.mixed_devices import Beside, read_beside, shared_batch
from paceline.app.requests.plan_request import (
    check_option_names,
    load,
    read_calibration,
    read_compiler,
)
from paceline.app.requests.words import read_day, read_word
from paceline.catalog.entities import Catalog, Device, Offer
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, parse_device_count
from paceline.catalog.past import check_priced, known_on
from paceline.catalog.usual_hosts import usual_host_words, with_usual_host
from paceline.errors import InvalidInputError, MissingFactError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.items import StatedItem
from paceline.model.names.front_ends import usual_software
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.uncertainty import WIDEST_LOG_SIGMA
from paceline.planning.decisions.curve import ScalingCurve
from paceline.planning.decisions.device_counts import BatchRule, default_batch, scaling_curve
from paceline.planning.effects import check_rewrite_acts
from paceline.planning.forecast.grid_jobs import GridAxes
from paceline.planning.goal.amounts import Job as Amount
from paceline.planning.goal.amounts import check_global_batch, resolve_job
from paceline.planning.goal.batch_limit import BatchLimit, batch_limit_of, most_items
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.options import parse_work
from paceline.planning.goal.rewrites import (
    OF_A_SEARCH,
    check_rewrite,
    habit_words,
    run_words,
    table_words,
    usual_words,
    with_usual,
)
from paceline.planning.places.price import rental_terms
from paceline.planning.places.support import checked_on, configuration_on, source_words
from paceline.simulation.job import HABITS, Habit, Job, usual_habits
from paceline.simulation.unequal import Part, unequal_step
from paceline.stack.engines import USUAL_LOOP, EngineProfile
from paceline.stack.trainers import loop_of, release_in
from paceline.values import dataclass

#: Ways in which expert ranks exchange tokens.
_EXCHANGES: tuple[Habit, ...] = ("tokens-once", "whole", "hidden")
#: Counts where none are named.
USUAL_COUNTS = (1, 2, 4, 8, 16, 32, 64)
#: What makes the cost of a job here less than that of its plan.
_STEPS_ALONE = (
    "time and cost of the job are its steps on so many devices; `paceline plan` adds set-up and "
    "pays whole machines"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The scaling curve of a training job on machines of one kind.

    Attributes:
        model: As typed.
        title: As printed.
        device: ``Device.name``.
        offer: ``Offer.name`` of the machines.
        sample_unit: What a batch item is.
        rate_unit: What throughput is printed in: tokens of language models.
        samples_per_item: How many of them one batch item counts for.
        assumptions: Printed first, one sentence each.
        curve: One point per count, and the knee.
    """

    model: str
    title: str
    device: str
    offer: str
    sample_unit: str
    rate_unit: str
    samples_per_item: float
    assumptions: tuple[str, ...]
    curve: ScalingCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingQuestion:
    """On what and how a training job is to be scaled; see `paceline.app.api.planning.scale`."""

    counts: tuple[int, ...]
    today: date
    device: str | None = None
    offer: str | None = None
    batch_per_device: int | None = None
    global_batch: int | None = None
    precision: str | None = None
    compiler: str | None = None
    seq: int | None = None
    strategy: str | None = None
    experts: str | None = None
    framework: str | None = None
    rewrite: str = ""
    work: Work = field(default_factory=Work)
    facts: tuple[Path, ...] = ()
    calibration: Path | None = None

    def length(self, workload: Workload) -> int:
        """Tokens of a sequence: as asked, else the workload's own."""
        return self.seq or workload.default_seq

    def job(self, workload: Workload) -> Amount:
        """How much is trained.

        Raises:
            InvalidInputError: The work cannot be counted, or no epoch fills the global batch.
        """
        length = self.length(workload)
        job = resolve_job(workload, self.work, seq=length, rewrite=self.rewrite)
        check_global_batch(self.global_batch, job, workload)
        return job

    def rule(self, workload: Workload) -> BatchRule:
        """How the global batch follows the number of devices."""
        if self.states_batch:
            return BatchRule(global_batch=self.global_batch, batch_per_device=self.batch_per_device)
        best = self.limit(workload).max_items
        return BatchRule(max_global_batch=workload.max_global_batch, best_global_batch=best)

    @property
    def states_batch(self) -> bool:
        """Whether the batch is given."""
        return bool(self.global_batch or self.batch_per_device)

    def limit(self, workload: Workload) -> BatchLimit:
        """The largest global batch where none is given; of text without a job, four M tokens."""
        limit = batch_limit_of(workload, self.job(workload), self.rewrite)
        if limit.max_items or workload.sample_unit != "tokens":
            return limit
        why = "or four million tokens, as no work is stated"
        return replace(limit, max_items=most_items(limit, self.length(workload)), why=why)

    def batch_words(self, workload: Workload, curve: ScalingCurve) -> str:
        """What bounds the batch, where a step sums several microbatches that nobody stated."""
        sums = any(
            Strategy.parse(one.strategy).schedule.num_microbatches > 1 for one in curve.points
        )
        return self.limit(workload).words if sums and not self.states_batch else ""


def read_question(
    model: object,
    counts: Sequence[int],
    *,
    item: StatedItem | None = None,
    **options: Unpack[ClusterOptions],
) -> tuple[Workload, ScalingQuestion]:
    """The traced model, and where and how it is to be trained.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    check_option_names(options, ClusterOptions.__annotations__, command="paceline scale --help")
    given: dict[str, Any] = {**options}
    traced = {name: given.pop(name, None) for name in ("image_size", "optimizer", "python")}
    given["framework"] = given.get("framework") or usual_software(model, "train")
    traced["framework"] = given["framework"]
    workload = load(model, task="train", seq=given.get("seq"), item=item, **traced)
    today, facts = read_day(given.pop("as_of", None)), tuple(given.pop("facts", ()))
    device, counted = _counted(given.pop("device", None), tuple(counts))
    question = ScalingQuestion(counts=counted, today=today, facts=facts, device=device, **given)
    return workload, question


def _counted(device: str | None, counts: tuple[int, ...]) -> tuple[str | None, tuple[int, ...]]:
    """A device and how many of it, where its name says so: ``8x h100``.

    Raises:
        InvalidInputError: Its name and the counts both say it.
    """
    name, count = (device, 1) if device is None else parse_device_count(device)
    if count == 1:
        return name, counts
    if counts not in (USUAL_COUNTS, (count,)):
        raise InvalidInputError(
            f"`{device}` and `--counts` both say how many", hint=f"write --device '{name}'"
        )
    return name, (count,)


def stated_work(**options: str | float | None) -> Work:
    """The work that options of a job state: ``samples``, ``epochs``, ``tokens``."""
    return parse_work(option_texts(options, JOB_OPTIONS))


def scale_workload(workload: Workload, question: ScalingQuestion) -> Scaling:
    """Answer the question.

    Raises:
        NoOfferError: Nobody offers that device at a usable price.
        DoesNotFitError: The job works on none of the counts.
    """
    place, amount = place_of(question), question.job(workload)
    items = amount.amount.items_per_epoch
    with progress("scaling"):
        curve = scaling_curve(
            place.job(workload, question),
            place.cluster,
            counts=question.counts,
            batch=question.rule(workload),
            num_items=None if items is None else items * amount.amount.num_epochs,
            calibration=read_calibration(question.calibration),
            strategy=None if question.strategy is None else Strategy.parse(question.strategy),
            widest_log_sigma=WIDEST_LOG_SIGMA,
        )
    return Scaling(
        model=workload.name,
        title=workload.title,
        device=place.device.name,
        offer=place.offer.name,
        sample_unit=workload.sample_unit if amount.amount.samples_per_item == 1 else "sequences",
        rate_unit=workload.sample_unit,
        samples_per_item=amount.amount.samples_per_item,
        assumptions=(
            *filter(
                None, (amount.assumption, question.batch_words(workload, curve), workload.item)
            ),
            *place.assumptions(workload, question, question.length(workload)),
            *_kept_words(workload, curve),
            *(() if items is None else (_STEPS_ALONE,)),
        ),
        curve=curve,
    )


def _kept_words(workload: Workload, curve: ScalingCurve) -> tuple[str, ...]:
    """That no strategy of a language model computes again, as published runs often do."""
    again = any(Strategy.parse(one.strategy).recompute != "none" for one in curve.points)
    if again or workload.sample_unit != "tokens":
        return ()
    return (
        "every activation is kept, none computed again (change with --strategy, such as "
        "dp8+zero3+recompute-block)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The machines that a question means, and how a job runs there.

    Attributes:
        cluster: As strategies see them.
        configuration: How a rank runs.
        habits: How expert ranks exchange tokens.
        machine_assumptions: What was taken of their links and their host.
    """

    offer: Offer
    cluster: Cluster
    configuration: Configuration
    habits: tuple[Habit, ...]
    machine_assumptions: tuple[str, ...]

    @property
    def device(self) -> Device:
        """What is inside."""
        return self.cluster.device

    def job(self, workload: Workload, question: ScalingQuestion) -> Job:
        """What is trained there.

        Raises:
            InvalidInputError: A setting of the rewrite changes nothing.
        """
        _check_rewrite_acts(workload, question, self.device, self.configuration)
        said = {*self.habits, *self._usual_habits(workload, question)}
        return Job(
            workload=workload, configuration=self.configuration, seq=question.seq,
            habits=tuple(habit for habit in HABITS if habit in said),
            profile=_loop(question).host,
        )  # fmt: skip

    def _usual_habits(self, workload: Workload, question: ScalingQuestion) -> tuple[Habit, ...]:
        return usual_habits(
            question.framework or "", model=workload.name, device=self.device.name,
            configuration=self.configuration,
        )  # fmt: skip

    def assumptions(
        self, workload: Workload, question: ScalingQuestion, seq: int
    ) -> tuple[str, ...]:
        """What an answer there rests on, one sentence each."""
        usual = habit_words(question.framework, self._usual_habits(workload, question))
        return (
            *filter(None, (_length(seq), _machines(self.offer))),
            *_ways(workload, self.configuration, question),
            *filter(None, (usual, source_words(self.device, framework=_software(question)))),
            *self.machine_assumptions,
        )


def place_of(question: ScalingQuestion) -> Place:
    """Where a question is answered.

    Raises:
        NoOfferError: Nobody offers that device at a usable price.
    """
    catalog = _catalog(question)
    offer = _offer(catalog, question, max(question.counts, default=1))
    cluster = _cluster(catalog, offer, question.today)
    return Place(
        offer=offer,
        cluster=cluster,
        configuration=_configuration(cluster.device, question),
        habits=_habits(question),
        machine_assumptions=(
            *links_of(catalog, offer).assumptions,
            *filter(None, (usual_host_words(offer, with_usual_host(catalog, offer)),)),
        ),
    )


def beside_workload(workload: Workload, question: ScalingQuestion, beside: str) -> Beside:
    """A step on the devices asked about and on others beside them.

    Args:
        workload: What is trained.
        question: One count of devices, and everything else.
        beside: The other devices, as ``NAME:COUNT``.

    Raises:
        InvalidInputError: Several counts, a global batch that no epoch fills, or a strategy that
            unequal devices cannot run.
        NoOfferError: Nobody offers one of the devices at a usable price.
        DoesNotFitError: No split of the batch fits.
    """
    if len(question.counts) != 1:
        raise InvalidInputError(
            f"{len(question.counts)} device counts beside other devices",
            hint="give one count, such as --counts 8 --beside NAME:8",
        )
    if question.work != Work() or question.experts is not None:
        options = "--experts" if question.work == Work() else "--samples, --epochs or --tokens"
        raise InvalidInputError(
            f"{options} say nothing of one step on unequal devices", hint="leave them out"
        )
    question.job(workload)  # Refuses a global batch that no epoch fills.
    rule = question.rule(workload)
    offers, parts = _parts(question, *read_beside(beside))
    configuration = _configuration(parts[0].cluster.device, question)
    checked_on(parts[1].cluster.device, configuration)
    _check_rewrite_acts(workload, question, parts[0].cluster.device, configuration)
    job = Job(
        workload=workload, configuration=configuration, seq=question.seq,
        profile=_loop(question).host,
    )  # fmt: skip
    calibration = read_calibration(question.calibration)

    def busy(part: Part) -> int:
        return default_batch(job, part.cluster, rule, calibration=calibration)

    step = unequal_step(
        job,
        *parts,
        global_batch=shared_batch(rule, parts, busy),
        calibration=calibration,
        strategy=None if question.strategy is None else Strategy.parse(question.strategy),
    )
    return Beside(
        model=workload.name,
        title=workload.title,
        sample_unit=workload.sample_unit,
        assumptions=(
            *map(_machines, offers),
            *_ways(workload, configuration, question),
            *filter(None, (_length(question.length(workload)), workload.item)),
            "all devices meet over the slower of each link; losses are weighted by items",
        ),
        step=step,
    )


def _parts(
    question: ScalingQuestion, name: str, count: int
) -> tuple[tuple[Offer, Offer], tuple[Part, Part]]:
    """The machines asked about and ``count`` devices of those named beside them."""
    catalog, own = _catalog(question), question.counts[0]
    first = _offer(catalog, question, own + count)
    second = named_offer(catalog, name, own + count, today=question.today)
    return (first, second), (
        Part(cluster=_cluster(catalog, first, question.today), count=own),
        Part(cluster=_cluster(catalog, second, question.today), count=count),
    )


def _catalog(question: ScalingQuestion) -> Catalog:
    catalog = load_catalog(question.facts)
    check_priced(catalog, question.today)
    return known_on(catalog, question.today)


def _habits(question: ScalingQuestion) -> tuple[Habit, ...]:
    """What is said of how expert ranks exchange tokens.

    Raises:
        UnknownNameError: A word that says none of it.
        InvalidInputError: The strategy has no expert ranks.
    """
    if question.experts is None:
        return ()
    words = [word.strip() for word in question.experts.split(",")]
    ways = [read_word(w, _EXCHANGES, "way", command="paceline scale --help") for w in words]
    if question.strategy is None or Strategy.parse(question.strategy).size("ep") == 1:
        raise InvalidInputError(
            "`--experts` says how expert ranks exchange tokens, and no such ranks are stated",
            hint="state a strategy with an `ep` axis, such as --strategy dp4.ep8",
        )
    return tuple(habit for habit in _EXCHANGES if habit in ways)


def _cluster(catalog: Catalog, offer: Offer, today: date) -> Cluster:
    links, num_devices = links_of(catalog, offer), int(offer.num_devices)
    offer = with_usual_host(catalog, offer)
    return Cluster(
        device=_device_of(catalog, offer),
        devices_per_node=num_devices,
        device_link=links.device,
        node_link=links.node,
        host_link=links.host,
        host_memory_bytes=offer.host_memory_bytes,
        num_vcpus=offer.num_vcpus,
        usd_per_device_hour=None
        if offer.usd_per_hour is None
        else offer.usd_per_hour / num_devices,
        price_log_sigma=0.0
        if offer.usd_per_hour is None
        else rental_terms(offer, today=today).price_log_sigma,
    )


def _offer(catalog: Catalog, question: ScalingQuestion, most: int) -> Offer:
    if question.offer is not None and question.device is not None:
        raise InvalidInputError(
            f"`--device {question.device}` and `--offer {question.offer}` both say on what",
            hint="give one: an offer holds its own devices",
        )
    if question.offer is not None:
        return offer_called(catalog, question.offer, most, today=question.today)
    if question.device is None:
        raise InvalidInputError(
            "neither a device nor an offer is named", hint="add --device h100 or --offer NAME"
        )
    return offer_with(catalog, question.device, most, today=question.today)


def _device_of(catalog: Catalog, offer: Offer) -> Device:
    if offer.device_name is None or offer.num_devices < 1:
        raise MissingFactError(
            f"which device `{offer.name}` holds is not known",
            hint="name another offer, or write your own facts with --facts",
        )
    return find_device(catalog, offer.device_name)


def _configuration(device: Device, question: ScalingQuestion) -> Configuration:
    check_rewrite(question.rewrite)
    return configuration_on(
        device,
        precision=question.precision,
        compiler=None if question.compiler is None else read_compiler(question.compiler),
        rewrite=with_usual(
            question.rewrite, question.framework, is_training=True, leaving=OF_A_SEARCH
        ),
        framework=_software(question),
    )


def _software(question: ScalingQuestion) -> str:
    return release_in(question.framework or "") or _loop(question).framework


def _loop(question: ScalingQuestion) -> EngineProfile:
    """What trains.

    Raises:
        InvalidInputError: An engine that serves, or that runs what was trained.
    """
    loop = loop_of(question.framework or USUAL_LOOP)
    if loop.only_answers:
        raise InvalidInputError(
            f"{loop.title} runs trained models, and `scale` trains",
            hint="leave --framework out, or `paceline predict --task infer` with it",
        )
    return loop


def _check_rewrite_acts(
    workload: Workload, question: ScalingQuestion, device: Device, configuration: Configuration
) -> None:
    ways = Goal(
        precisions=(configuration.precision,),
        compilers=(configuration.compiler,),
        framework=question.framework,
    )
    axes = GridAxes(devices=(device,), seq=question.seq, rewrite=question.rewrite)
    check_rewrite_acts(workload, ways, Work(), load_catalog(question.facts), axes)


def _length(seq: int) -> str:
    return f"sequences of {seq:,} tokens" if seq > 1 else ""


def _machines(offer: Offer) -> str:
    seen = f"seen {offer.priced_on}" if offer.priced_on else "seen on an unknown day"
    price = f"{offer.usd_per_hour:g} USD/h each, {seen}" if offer.usd_per_hour else "no price known"
    devices = "a device" if offer.num_devices == 1 else f"{offer.num_devices:g} devices"
    return f"machines {offer.name} with {devices}, {price}"


def _ways(
    workload: Workload, configuration: Configuration, question: ScalingQuestion
) -> Sequence[str]:
    rewrite = question.rewrite
    usual = usual_words(question.framework, rewrite, is_training=True, leaving=OF_A_SEARCH)
    how = f"{configuration.precision} {configuration.compiler}"
    trained = f"trained by {workload.optimizer}" if workload.optimizer else ""
    tables = table_words(workload, rewrite)
    return [how, *filter(None, (trained, run_words(rewrite), tables, usual))]
