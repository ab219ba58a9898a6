"""``own``, ``fits``, ``bill`` and ``pool``: the decisions beside the plan of one job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of
from paceline.errors import DoesNotFitError
from paceline.units import parse_usd

if TYPE_CHECKING:
    from paceline.planning.places.fitting import FittedCard


#: More cards than any machine of one's own has slots for.
_MOST_CARDS = 8


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("own", own)
    app.add_verb("fits", fits)
    app.add_verb("bill", bill)
    app.add_verb("pool", pool)


@common.answers
def own(
    path: Annotated[Path, Argument(metavar="FILE", help="TOML file with one table per purchase.")],
    name: Annotated[str | None, Option(help="Only this purchase of the file.")] = None,
    price: Annotated[
        str | None, Option(metavar="2800usd", help="Price of the machine, instead of the file's.")
    ] = None,
    electricity: Annotated[
        float | None, Option(metavar="0.25", help="USD per kWh, instead of the region's.")
    ] = None,
    pue: Annotated[
        float | None,
        Option(metavar="1.3", help="Power of the building over that of the machine."),
    ] = None,
    utilisation: Annotated[
        float | None, Option(metavar="0.5", help="Share of all hours in which it works.")
    ] = None,
    facts: common.Facts = None,
) -> Answer:
    """Judge a purchase against renting: cost, break-even, what it turns on, every source."""
    from paceline.app.api.decisions import own as judge
    from paceline.reporting.screens import decisions as report

    found = judge(
        path,
        name=name,
        facts=facts or (),
        price_usd=None if price is None else parse_usd(price),
        usd_per_kwh=electricity,
        pue=pue,
        utilisation=utilisation,
    )
    return Answer(
        kind="purchases",
        value=found,
        text=lambda width: report.purchases_text(found, width=width),
        markdown=lambda: report.purchases_markdown(found),
    )


@common.answers
def fits(
    machine: Annotated[
        str, Argument(metavar="MACHINE", help="A machine of your facts file, by its name.")
    ],
    device: Annotated[str | None, Option(metavar="3090", help="Ask about this card only.")] = None,
    cards: Annotated[int, Option(help="How many of it.")] = 1,
    facts: common.Facts = None,
) -> Answer:
    """Say which cards an own machine can take, by power, slots and airflow; status 3 if none."""
    from paceline.app.api.decisions import fits as fitted
    from paceline.reporting.screens import decisions as report

    judge = partial(fitted, machine, device=device, facts=facts or ())
    found = judge(cards=cards)
    none = "no card of the catalogue fits; --device NAME says what one lacks"
    answer = answer_of("fits", found, report.fit_table(found) if found else none)
    return answer if _is_taken(found) else replace(answer, failure=_cannot_take(judge, cards))


def _cannot_take(judge: Callable[..., tuple[FittedCard, ...]], num_cards: int) -> DoesNotFitError:
    """With so many of the cards asked about as would fit, else with where to look further."""
    found = judge(cards=num_cards)
    counts = range(1, min(num_cards, _MOST_CARDS + 1))
    fewer = sum(1 for _ in takewhile(lambda n: _is_taken(judge(cards=n)), counts))
    what = f"{num_cards} × {found[0].device.name}" if found else f"{num_cards} of any card"
    others = "leave out --device to see the cards that fit" if found else "name one with --device"
    hint = f"--cards {fewer} would fit" if fewer else others
    return DoesNotFitError(f"the machine cannot take {what}", hint=hint)


def _is_taken(cards: tuple[FittedCard, ...]) -> bool:
    return any(not card.reasons for card in cards)


@common.answers
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
    save: Annotated[
        str | None, Option(help="Time of one checkpoint, on spot machines; 60s without.")
    ] = None,
    save_every: Annotated[
        str | None,
        Option(metavar="30min", help="Work between two, likewise; what costs least without."),
    ] = None,
    restart: Annotated[
        str | None, Option(help="Paid time of a restart, likewise; 10min without.")
    ] = None,
    interruptions: Annotated[
        float | None,
        Option(metavar="0.02", help="Per hour of one machine, likewise; as published without."),
    ] = None,
    price: Annotated[
        str | None, Option(metavar="9usd", help="Of a machine and hour, instead of the known one.")
    ] = None,
    region: Annotated[str, Option(help="Where it runs, if not where the price was seen.")] = "",
    as_of: common.AsOf = None,
    facts: common.Facts = None,
) -> Answer:
    """Price a job, not an hour: billing rules, interruptions, storage, traffic, price age."""
    from paceline.app.api.decisions import bill as priced
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import find_offer
    from paceline.reporting.screens import decisions as report

    found = priced(
        offer,
        duration,
        nodes=nodes,
        term=term,
        setup=setup,
        storage=storage,
        egress=egress,
        save=save,
        save_every=save_every,
        restart=restart,
        interruptions=interruptions,
        price=price,
        region=region,
        as_of=as_of,
        facts=facts or (),
    )
    rented = find_offer(load_catalog(tuple(facts or ())), offer)
    return Answer(
        kind="bill",
        value=found,
        text=lambda width: report.bill_text(rented.name, found, width=width),
        markdown=lambda: report.bill_markdown(rented.name, found),
    )


@common.answers
def pool(
    path: Annotated[Path, Argument(metavar="FILE", help="YAML file with a pool and its jobs.")],
    python: common.Python = None,
    facts: common.Facts = None,
) -> Answer:
    """Schedule several jobs on one pool of devices: gang them, share out, or mix."""
    from paceline.app.api.decisions import pool as schedule
    from paceline.reporting.screens import decisions as report

    found = schedule(path, python=python, facts=facts or ())
    return Answer(
        kind="pool",
        value=found,
        text=lambda width: report.pool_text(found, width=width),
        markdown=lambda: report.pool_markdown(found),
    )
