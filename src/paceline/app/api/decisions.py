"""The public functions for the decisions beside the plan of one job: buy, bill, share, feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

from paceline.app.options import check_above_zero
from paceline.app.requests.plan_request import check_python_used, load, python_for, read_calibration
from paceline.app.requests.words import read_day, read_word
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.catalog.entities import Catalog, Machine
    from paceline.execution.folder_feed import FolderFeed
    from paceline.model.graph.workload import Task, Workload
    from paceline.planfile import Interval
    from paceline.planning.decisions.pool_file import PoolAnswer, StatedJob
    from paceline.planning.decisions.purchase import Purchase, PurchaseAnswer
    from paceline.planning.lifecycle.answer import Lifecycle
    from paceline.planning.places.fitting import FittedCard
    from paceline.planning.places.price import JobPrice
    from paceline.prediction.input_side import (
        FedStep,
        InputHost,
        InputPipeline,
        InputPrediction,
        Remedy,
    )

_FEED_HELP = "paceline feed --help"
#: Of spot machines, where nothing else is said.
_USUAL_SAVE, _USUAL_RESTART = "60s", "10min"


class FolderOptions(TypedDict, total=False):
    """What `feed` takes of data that is there, as `measure_folder` describes it."""

    seconds: float
    model: str | None
    device: str | None
    check: bool
    window: int | None
    dtype: str | None
    python: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a host can feed its devices with.

    Attributes:
        delivered: What it delivers, and what holds it back.
        samples_per_s_interval: What it delivers, at a chance of 80 %.
        remedies: What would help, the largest gain first.
        fed: The step of the devices that it feeds; None if their rate was not stated.
        num_workers_needed: Loader processes for that rate; None if no number would do, or if it
            was not stated.
    """

    delivered: InputPrediction
    samples_per_s_interval: Interval
    remedies: tuple[Remedy, ...]
    fed: FedStep | None = None
    num_workers_needed: int | None = None


def own(
    what: str | Path,
    *,
    name: str | None = None,
    facts: Sequence[Path] = (),
    price_usd: float | None = None,
    usd_per_kwh: float | None = None,
    pue: float | None = None,
    utilisation: float | None = None,
    months: float | None = None,
    rent: str | None = None,
    as_of: str | date | None = None,
) -> tuple[PurchaseAnswer, ...]:
    """Judge purchases against renting: cost, break-even, and what it turns on.

    Args:
        what: Devices such as ``4x rtx 4090``, or a TOML file with one table per purchase.
        name: Only this purchase of the file.
        facts: Files with your own devices, offers and machines.
        price_usd: Price of all of it, as the next five instead of what is known or the file says.
        usd_per_kwh: Electricity.
        pue: Power of the building over that of the machine.
        utilisation: Share of all hours in which it works.
        months: Horizon.
        rent: Offer that would do the same work.
        as_of: Day on which prices are judged; today if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.catalog.load import load_catalog
    from paceline.planning.decisions.purchase import judge_purchase, restated

    catalog = load_catalog(tuple(facts))
    asked = _purchases(what, name, catalog, price_usd=price_usd, rent=rent, today=read_day(as_of))
    given = {
        "price_usd": price_usd, "usd_per_kwh": usd_per_kwh, "power_overhead": pue,
        "utilisation_frac": utilisation, "months": months, "rent_offer": rent,
    }  # fmt: skip
    stated: dict[str, Any] = {key: one for key, one in given.items() if one is not None}
    return tuple(judge_purchase(restated(purchase, stated), catalog) for purchase in asked)


def _purchases(
    what: str | Path,
    name: str | None,
    catalog: Catalog,
    *,
    price_usd: float | None,
    rent: str | None,
    today: date,
) -> Sequence[Purchase]:
    from paceline.planning.decisions.device_purchase import purchase_of_devices
    from paceline.planning.decisions.purchase import read_purchases

    path = Path(what)
    if path.suffix != ".toml" and not path.exists():
        if name is not None:
            raise InvalidInputError(
                "a name chooses among the purchases of a file", hint="leave out --name"
            )
        return [
            purchase_of_devices(str(what), catalog, today=today, price_usd=price_usd, rent=rent)
        ]
    purchases = read_purchases(path)
    if not purchases:
        raise InvalidInputError(
            f"`{path}` states no purchase",
            hint="write one table per purchase (examples/scenarios/purchases.toml)",
        )
    if name is not None and name not in purchases:
        raise UnknownNameError.from_name("purchase", name, purchases)
    return [purchases[name]] if name is not None else list(purchases.values())


def fits(
    machine: str, *, device: str | None = None, cards: int = 1, facts: Sequence[Path] = ()
) -> tuple[FittedCard, ...]:
    """Which cards an own machine can take, by power supply, slots and airflow.

    Args:
        machine: A machine of one of ``facts``, by its name.
        device: Only this card, judged either way; every card that fits if None.
        cards: How many of it.
        facts: Files with your own devices and machines.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import find_device
    from paceline.planning.places.fitting import fitted_cards

    check_above_zero(cards=cards)
    catalog = load_catalog(tuple(facts))
    asked = (find_device(catalog, device),) if device else ()
    return fitted_cards(catalog, _machine(catalog, machine), asked, num_cards=cards)


def _machine(catalog: Catalog, name: str) -> Machine:
    machines = {machine.name.lower(): machine for machine in catalog.machines}
    if not machines:
        raise InvalidInputError(
            "no machine is described",
            hint="name the file that describes yours with --facts (docs/how-to/own-devices.md); "
            "whether a model fits into a device is a question for `paceline predict MODEL`",
        )
    if name.lower() not in machines:
        raise UnknownNameError.from_name("machine", name, machines)
    return machines[name.lower()]


def bill(
    offer: str,
    duration: str,
    *,
    nodes: int = 1,
    term: str = "on-demand",
    setup: str = "10min",
    storage: str | None = None,
    egress: str | None = None,
    save: str | None = None,
    save_every: str | None = None,
    restart: str | None = None,
    interruptions: float | None = None,
    price: str | None = None,
    region: str = "",
    as_of: str | date | None = None,
    facts: Sequence[Path] = (),
) -> JobPrice:
    """Price a job, not an hour: billing rules, interruptions, storage, traffic, price age.

    Args:
        offer: Such as ``aws/p4d.24xlarge``.
        duration: Undisturbed run, such as ``36h``.
        nodes: Machines.
        term: ``on-demand``, ``spot``, ``reserved-1y`` or ``reserved-3y``.
        setup: Paid time before work begins.
        storage: Kept on the provider's disks, such as ``150GB``.
        egress: Taken out at the end, such as ``10GB``.
        save: Time of one checkpoint, on spot machines; 60 s if None.
        save_every: Work between two checkpoints, likewise; what costs least if None.
        restart: Paid time of a restart, likewise; 10 min if None.
        interruptions: Per hour of one machine, likewise; as published if None.
        price: Of one machine and hour, such as ``9usd``, in the place of the catalogue's.
        region: Where it runs, if not where the price was seen.
        as_of: Day on which prices are judged; today if None.
        facts: Files with your own offers.

    Raises:
        PacelineError: One of its leaves, with a hint.

    >>> price = bill("aws/p4d.24xlarge", "36h", as_of="2026-11-20")
    >>> price.total_usd.low < price.compute_usd <= price.total_usd.high
    True
    """
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import find_offer
    from paceline.catalog.past import known_on
    from paceline.planning.places import price as prices
    from paceline.planning.places.interruption import Checkpointing
    from paceline.units import parse_bytes, parse_duration_s, parse_usd

    check_above_zero(nodes=nodes, interruptions=interruptions)
    saving = Checkpointing(
        save_s=parse_duration_s(save or _USUAL_SAVE),
        restart_s=parse_duration_s(restart or _USUAL_RESTART),
        interval_s=parse_duration_s(save_every) if save_every else None,
    )
    demand = prices.JobDemand(
        run_s=parse_duration_s(duration), num_nodes=nodes, setup_s=parse_duration_s(setup),
        storage_bytes=parse_bytes(storage) if storage else 0.0,
        egress_bytes=parse_bytes(egress) if egress else 0.0,
        checkpointing=saving,
    )  # fmt: skip
    way = read_word(term, prices.TERMS, "term", command="paceline bill --help")
    today = read_day(as_of)
    of_spot = {"save": save, "save-every": save_every, "restart": restart}
    _check_interruptible(way, of_spot | {"interruptions": interruptions})
    _check_region_matters(region, price)
    catalog = known_on(load_catalog(tuple(facts)), today)
    rented = find_offer(catalog, offer)
    prices.check_region(region, rented, catalog.offers)
    terms = prices.rental_terms(
        rented, term=way, today=today, region=region,
        usd_per_hour=None if price is None else parse_usd(price),
        interruptions_per_hour=interruptions,
    )  # fmt: skip
    return prices.price_job(demand, terms)


def _check_region_matters(region: str, price: str | None) -> None:
    """Refuse a region that changes nothing, as the price of no region is asked for."""
    if region and price is not None:
        raise InvalidInputError(
            f"`--region {region}` says where a price holds, and `--price {price}` is your own",
            hint="leave one of them out",
        )


def _check_interruptible(term: str, stated: Mapping[str, str | float | None]) -> None:
    """Refuse what is said of interruptions where nothing is interrupted."""
    for name, value in stated.items():
        if value is not None and term != "spot":
            raise InvalidInputError(
                f"`--{name} {value}` is of spot machines, and {term} ones are not taken back",
                hint=f"leave --{name} out, or add --term spot",
            )


def lifecycle(
    path: Path,
    *,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    as_of: str | date | None = None,
) -> Lifecycle:
    """Choose a place each to develop, to train and to serve a model, and one place for all.

    Args:
        path: YAML file with a model and one to three of these phases.
        python: The Python that has the model's framework; found if None.
        facts: Files with your own devices, offers and machines, beside the one the file names.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        as_of: Day on which prices are judged; today if None.

    Raises:
        PacelineError: One of its leaves, with a hint; it names the phase that nothing can do.
    """
    from paceline.catalog.load import load_catalog
    from paceline.planning.lifecycle.answer import answer_lifecycle
    from paceline.planning.lifecycle.file import read_lifecycle, stated_dataset, stated_phases
    from paceline.planning.lifecycle.lifecycle import search_ways

    stated, path = read_lifecycle(Path(path)), Path(path)
    named = (path.parent / stated.facts,) if stated.facts else ()
    dataset = stated_dataset(stated)
    used: list[str | None] = []

    def traced(task: Task) -> Workload:
        used.append(python_for(stated.model, python, task))
        return load(stated.model, task=task, seq=stated.seq, python=used[-1])

    phases = stated_phases(
        stated,
        traced,
    )
    check_python_used(python, used)
    ways = search_ways(
        phases,
        dataset,
        load_catalog((*named, *facts)),
        today=read_day(as_of),
        calibration=read_calibration(calibration),
    )
    return answer_lifecycle(ways, dataset, title=stated.title)


def pool(path: Path, *, python: str | None = None, facts: Sequence[Path] = ()) -> PoolAnswer:
    """Schedule several jobs on one pool of devices: gang them, share out, or mix.

    Args:
        path: YAML file with a pool and its jobs.
        python: The Python that has the models' framework; found if None.
        facts: Files with your own devices.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.catalog.load import load_catalog
    from paceline.planning.decisions.pool_file import plan_pool, read_pool

    used: list[str | None] = []

    def traced(job: StatedJob) -> Workload:
        used.append(python_for(job.model, python, job.task))
        return load(job.model, task=job.task, seq=job.seq, python=used[-1])

    catalog = load_catalog(tuple(facts))
    found = plan_pool(read_pool(Path(path), catalog), catalog, traced)
    check_python_used(python, used)
    return found


def feed(
    data: str,
    *,
    size: int = 224,
    cores: int | None = None,
    workers: int | None = None,
    storage: str | None = None,
    rate: float | None = None,
    devices: int = 1,
    sent_as: str | None = None,
    measured: float | None = None,
    **of_a_folder: Unpack[FolderOptions],
) -> Feed | FolderFeed:
    """What a host can feed its devices with, what holds it back, and what would help.

    Args:
        data: ``imagenet``, ``coco``, ``cifar10`` or ``mnist``, which are predicted; or a folder,
            file or pattern, which is measured on this host.
        size: Pixels of a side of the square image that is sent.
        cores: Cores of the host; 8 if None. Measured: those there are.
        workers: Loader processes, one per core if None; measured: threads, chosen if None.
        storage: ``nvme``, ``sata-ssd``, ``hdd``, ``network-disk`` or ``object-store``; ``nvme`` if
            None.
        rate: Samples per second that one device could do.
        devices: Devices fed.
        sent_as: ``float32`` or ``uint8``; ``float32`` if None.
        measured: Samples per second that this pipeline gives now.
        of_a_folder: As in `measure_folder`.

    Raises:
        PacelineError: One of its leaves, with a hint.

    >>> feed("imagenet", cores=16).delivered.limit
    'cores'
    """
    from paceline.app.api.feeding import is_data, measure_folder
    from paceline.prediction.input_side import sample_format

    if is_data(data):
        _refuse_given(
            f"`{data}` is measured on this host", cores=cores, storage=storage, sent_as=sent_as,
            measured=measured,
        )  # fmt: skip
        return measure_folder(
            data, size=size, threads=workers, rate=rate, devices=devices, **of_a_folder
        )
    sample_format(data)  # Refuses a name that is no data set, before what would not act on it.
    if (model := of_a_folder.get("model")) is not None:
        raise InvalidInputError(
            f"`{data}` is predicted, nothing is read: `--model` would change nothing",
            hint=f"say how fast it trains, as `paceline predict {model} --device …` does: --rate",
        )
    _refuse_given(f"`{data}` is predicted, nothing is read", **of_a_folder)
    return _predicted_feed(
        data, size, 8 if cores is None else cores, workers, storage or "nvme", rate, devices,
        sent_as or "float32", measured,
    )  # fmt: skip


def _refuse_given(why: str, **given: object) -> None:
    """Refuse options that would not act."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise InvalidInputError(
                f"{why}: `--{name.replace('_', '-')}` would change nothing", hint="leave it out"
            )


def _predicted_feed(
    data: str,
    size: int,
    cores: int,
    workers: int | None,
    storage: str,
    rate: float | None,
    devices: int,
    sent_as: str,
    measured: float | None,
) -> Feed:
    from paceline.parallelism.uncertainty import (
        CALIBRATED_INPUT_LOG_SIGMA,
        INPUT_LOG_SIGMA,
        interval_of,
    )
    from paceline.prediction.input_side import (
        calibrated_host,
        feed_step,
        predict_input,
        remedies,
        workers_needed,
    )

    check_above_zero(size=size, cores=cores, rate=rate, devices=devices, measured=measured)
    if rate is None and devices != 1:
        raise InvalidInputError(
            f"`--devices {devices}` says nothing without what one device could do",
            hint="add --rate, as `paceline predict` gives it",
        )
    pipeline, host = _input_side(data, size, cores, workers, storage, sent_as)
    if measured is not None:
        host = calibrated_host(host, pipeline, measured)
    delivered = predict_input(pipeline, host)
    sigma = INPUT_LOG_SIGMA if measured is None else CALIBRATED_INPUT_LOG_SIGMA
    found = Feed(
        delivered=delivered,
        samples_per_s_interval=interval_of(delivered.samples_per_s, sigma),
        remedies=remedies(pipeline, host),
    )
    if rate is None:
        return found
    return replace(
        found,
        fed=feed_step(pipeline.batch / rate, pipeline, host, num_devices=devices),
        num_workers_needed=workers_needed(pipeline, host, devices * rate),
    )


def _input_side(
    data: str, size: int, cores: int, workers: int | None, storage: str, sent_as: str
) -> tuple[InputPipeline, InputHost]:
    from paceline.prediction.input_side import (
        InputHost,
        InputPipeline,
        SentAs,
        sample_format,
        storage_read_bytes_per_s,
    )

    if workers is not None and workers < 0:
        raise InvalidInputError(
            f"`--workers {workers}` cannot be", hint="0 loads in the training process itself"
        )
    sample = sample_format(data)
    pipeline = InputPipeline(
        sample=sample,
        width=size,
        height=size,
        sent_as=read_word(sent_as, get_args(SentAs), "format", command=_FEED_HELP),
        num_workers=cores if workers is None else workers,
        is_resized=(sample.width, sample.height) != (size, size),
    )
    read = storage_read_bytes_per_s(storage)
    return pipeline, InputHost(num_cores=cores, storage_read_bytes_per_s=read)
