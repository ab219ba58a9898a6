"""``own``, ``fits``, ``bill``, ``pool`` and ``feed``: the decisions beside the plan of one job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of, say
from paceline.errors import InvalidInputError, UnknownNameError

if TYPE_CHECKING:
    from paceline.predict.input import InputHost, InputPipeline


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("own", own)
    app.add_verb("fits", fits)
    app.add_verb("bill", bill)
    app.add_verb("pool", pool)
    app.add_verb("feed", feed)


def own(
    path: Annotated[Path, Argument(metavar="FILE", help="TOML file with one table per purchase.")],
    name: Annotated[str | None, Option(help="Only this purchase of the file.")] = None,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Judge a purchase against renting: cost, break-even, what it turns on, every source."""
    from paceline.catalog import load_catalog
    from paceline.plan.purchase import judge_purchase, read_purchases
    from paceline.report import decisions as report

    purchases = read_purchases(path)
    if name is not None and name not in purchases:
        raise UnknownNameError.from_name("purchase", name, purchases)
    catalog = load_catalog(tuple(facts or ()))
    chosen = [purchases[name]] if name is not None else list(purchases.values())
    found = tuple(judge_purchase(purchase, catalog) for purchase in chosen)
    answer = Answer(
        kind="purchases",
        value=found,
        text=lambda width: report.purchases_text(found, width=width),
        markdown=lambda: report.purchases_markdown(found),
    )
    say(answer, common.form_of(form, is_json=is_json), output)


def fits(
    machine: Annotated[
        str, Argument(metavar="MACHINE", help="A machine of your facts file, by its name.")
    ],
    device: Annotated[str | None, Option(metavar="3090", help="Ask about this card only.")] = None,
    cards: Annotated[int, Option(help="How many of it.")] = 1,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Say which cards an own machine can take, by power supply, slots and airflow."""
    from paceline.catalog import find_device, load_catalog
    from paceline.plan.fitting import fitted_cards
    from paceline.report import decisions as report

    common.check_above_zero(cards=cards)
    catalog = load_catalog(tuple(facts or ()))
    machines = {m.name.lower(): m for m in catalog.machines}
    if not machines:
        raise InvalidInputError(
            "no machine is described",
            hint="name the file that describes yours with --facts (docs/how-to/own-devices.md)",
        )
    if machine.lower() not in machines:
        raise UnknownNameError.from_name("machine", machine, machines)
    asked = (find_device(catalog, device),) if device else ()
    found = fitted_cards(catalog, machines[machine.lower()], asked, num_cards=cards)
    answer = answer_of("fits", found, report.fit_table(found))
    say(answer, common.form_of(form, is_json=is_json), output)


def bill(
    offer: Annotated[str, Argument(metavar="OFFER", help="Such as aws/p4d.24xlarge.")],
    duration: Annotated[str, Argument(metavar="TIME", help="Undisturbed run, such as 36h.")],
    nodes: Annotated[int, Option(help="Machines.")] = 1,
    term: Annotated[str, Option(help="on-demand, spot, reserved-1y or reserved-3y.")] = "on-demand",
    setup: Annotated[str, Option(help="Paid time before work begins.")] = "10min",
    storage: Annotated[
        str | None, Option(metavar="150GB", help="Kept on the provider's disks.")
    ] = None,
    egress: Annotated[str | None, Option(metavar="10GB", help="Taken out at the end.")] = None,
    save: Annotated[str, Option(help="Time of one checkpoint, on spot machines.")] = "60s",
    restart: Annotated[str, Option(help="Paid time of a restart, likewise.")] = "10min",
    region: Annotated[str, Option(help="Where it runs, if not where the price was seen.")] = "",
    as_of: Annotated[
        str | None, Option(metavar="2026-11-20", help="Judge prices as of this day.")
    ] = None,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Price a job, not an hour: billing rules, interruptions, storage, traffic, price age."""
    from paceline.app.inquiry import read_day, read_word
    from paceline.catalog import find_offer, known_on, load_catalog
    from paceline.plan.interruption import Checkpointing
    from paceline.plan.price import TERMS, JobDemand, price_job, rental_terms
    from paceline.report import decisions as report
    from paceline.units import parse_bytes, parse_duration_s

    if nodes < 1:
        raise InvalidInputError("no machine to bill", hint="give --nodes 1 or more")
    demand = JobDemand(
        run_s=parse_duration_s(duration),
        num_nodes=nodes,
        setup_s=parse_duration_s(setup),
        storage_bytes=parse_bytes(storage) if storage else 0.0,
        egress_bytes=parse_bytes(egress) if egress else 0.0,
        checkpointing=Checkpointing(
            save_s=parse_duration_s(save), restart_s=parse_duration_s(restart)
        ),
    )
    way = read_word(term, TERMS, "term", command="paceline bill --help")
    today = read_day(as_of)
    rented = find_offer(known_on(load_catalog(tuple(facts or ())), today), offer)
    terms = rental_terms(rented, term=way, today=today, region=region)
    found = price_job(demand, terms)
    answer = Answer(
        kind="bill",
        value=found,
        text=lambda width: report.bill_text(rented.name, found, width=width),
        markdown=lambda: report.bill_markdown(rented.name, found),
    )
    say(answer, common.form_of(form, is_json=is_json), output)


def pool(
    path: Annotated[Path, Argument(metavar="FILE", help="YAML file with a pool and its jobs.")],
    python: common.Python = None,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Schedule several jobs on one pool of devices: gang them, share out, or mix."""
    from paceline.app.inquiry import load
    from paceline.catalog import load_catalog
    from paceline.plan.pool_file import plan_pool, read_pool
    from paceline.report import decisions as report

    found = plan_pool(
        read_pool(path),
        load_catalog(tuple(facts or ())),
        lambda job: load(job.model, task=job.task, seq=job.seq, python=python),
    )
    answer = Answer(
        kind="pool",
        value=found,
        text=lambda width: report.pool_text(found, width=width),
        markdown=lambda: report.pool_markdown(found),
    )
    say(answer, common.form_of(form, is_json=is_json), output)


def feed(
    data: Annotated[str, Argument(metavar="DATA", help="imagenet, coco, cifar10 or mnist.")],
    size: Annotated[int, Option(help="Pixels of the square image that is sent.")] = 224,
    cores: Annotated[int, Option(help="Cores of the host.")] = 8,
    workers: Annotated[int | None, Option(help="Loader processes; one per core if absent.")] = None,
    storage: Annotated[
        str, Option(help="nvme, sata-ssd, hdd, network-disk or object-store.")
    ] = "nvme",
    rate: Annotated[
        float | None, Option(metavar="1200", help="Samples per second one device could do.")
    ] = None,
    num_devices: Annotated[int, Option(help="Devices fed.", flags=("--devices",))] = 1,
    sent_as: Annotated[str, Option(help="float32 or uint8.")] = "float32",
    measured: Annotated[
        float | None, Option(metavar="310", help="Samples per second this pipeline gives now.")
    ] = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Say what a host can feed its devices with, what holds it back, and what would help."""
    from paceline.predict.input import (
        calibrated_host,
        describe_feed,
        feed_step,
        predict_input,
        remedies,
        workers_needed,
    )
    from paceline.report import decisions as report

    common.check_above_zero(
        size=size, cores=cores, rate=rate, devices=num_devices, measured=measured
    )
    pipeline, host = _input_side(data, size, cores, workers, storage, sent_as)
    if measured is not None:
        host = calibrated_host(host, pipeline, measured)
    delivered = predict_input(pipeline, host)
    table = report.input_table(delivered, remedies(pipeline, host))
    sentence = f"limited by {delivered.limit}"
    if rate is not None:
        fed = feed_step(pipeline.batch / rate, pipeline, host, num_devices=num_devices)
        needed = workers_needed(pipeline, host, num_devices * rate)
        workers_text = "no number of workers" if needed is None else f"{needed} workers"
        sentence = f"{describe_feed(fed, delivered, num_devices)}; {workers_text} would do"
    answer = answer_of("input_side", delivered, sentence, table, report.stage_table(delivered))
    say(answer, common.form_of(form, is_json=is_json), output)


def _input_side(
    data: str, size: int, cores: int, workers: int | None, storage: str, sent_as: str
) -> tuple[InputPipeline, InputHost]:
    from paceline.predict.input import (
        InputHost,
        InputPipeline,
        sample_format,
        storage_read_bytes_per_s,
    )

    if workers is not None and workers < 0:
        raise InvalidInputError(
            f"`--workers {workers}` cannot be", hint="0 loads in the training process itself"
        )
    if sent_as not in ("float32", "uint8"):
        raise UnknownNameError.from_name(
            "format", sent_as, ("float32", "uint8"), command="paceline feed --help"
        )
    sample = sample_format(data)
    pipeline = InputPipeline(
        sample=sample,
        width=size,
        height=size,
        sent_as="uint8" if sent_as == "uint8" else "float32",
        num_workers=cores if workers is None else workers,
        is_resized=(sample.width, sample.height) != (size, size),
    )
    read = storage_read_bytes_per_s(storage)
    return pipeline, InputHost(num_cores=cores, storage_read_bytes_per_s=read)
