"""``own``, ``fits``, ``bill`` and ``pool``: the decisions beside the plan of one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.api import decisions as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of, written_answer
from paceline.errors import DoesNotFitError
from paceline.units import parse_usd

if TYPE_CHECKING:
    from paceline.planning.places.fitting import FittedCard


#: More cards than any machine of one's own has slots for.
_MOST_CARDS = 8


@common.answers
@asks(
    api.own,
    what=Argument("WHAT", "Devices such as '4x rtx 4090', or a TOML file with one table each."),
    name=Option("Only this purchase of the file."),
    price=Annotated[str | None, Option("Price of all of it, instead of what is known.", "2800usd")],
    usd_per_kwh=Option("USD per kWh, instead of the region's.", "0.25", ("--electricity",)),
    pue=Option("Power of the building over that of the machine.", "1.3"),
    utilisation=Option("Share of all hours in which it works.", "0.5"),
    months=Option("How long it is kept.", "36"),
    rent=Option("Offer that would do the same work.", "lambda/gpu_1x_a10"),
    facts=common.Facts,
    as_of=common.AsOf,
)
def own(*, price: str | None, **asked: Any) -> Answer:
    """Judge a purchase against renting: cost, break-even, what it turns on, every source."""
    from paceline.reporting.screens import decisions as report

    found = api.own(price_usd=None if price is None else parse_usd(price), **asked)
    return written_answer("purchases", found, partial(report.purchases_words, found))


@common.answers
@asks(
    api.fits,
    machine=Argument("MACHINE", "A machine of your facts file, by its name."),
    device=Option("Ask about this card only.", "3090"),
    cards=Option("How many of it."),
    facts=common.Facts,
)
def fits(*, cards: int, **asked: Any) -> Answer:
    """Say which cards an own machine can take, by power, slots and airflow; status 3 if none."""
    from paceline.reporting.screens import decisions as report

    judge = partial(api.fits, **asked)
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
@asks(
    api.bill,
    offer=Argument("OFFER", "Such as aws/p4d.24xlarge."),
    duration=Argument("TIME", "Undisturbed run, such as 36h."),
    nodes=Option("Machines."),
    term=Option("on-demand, spot, reserved-1y or reserved-3y."),
    setup=Option("Paid time before work begins."),
    storage=Option("Kept on the provider's disks.", "150GB"),
    egress=Option("Taken out at the end.", "10GB"),
    save=Option("Time of one checkpoint, on spot machines; 60s without."),
    save_every=Option("Work between two, likewise; what costs least without.", "30min"),
    restart=Option("Paid time of a restart, likewise; 10min without."),
    interruptions=Option("Per hour of one machine, likewise; as published without.", "0.02"),
    price=Option("Of a machine and hour, instead of the known one.", "9usd"),
    region=Option("Where it runs, if not where the price was seen."),
    as_of=common.AsOf,
    facts=common.Facts,
)
def bill(*, offer: str, facts: Sequence[Path], **asked: Any) -> Answer:
    """Price a job, not an hour: billing rules, interruptions, storage, traffic, price age."""
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import find_offer
    from paceline.reporting.screens import decisions as report

    found = api.bill(offer, facts=facts, **asked)
    rented = find_offer(load_catalog(tuple(facts)), offer)
    return written_answer("bill", found, partial(report.bill_words, rented.name, found))


@common.answers
@asks(
    api.pool,
    path=Argument("FILE", "YAML file with a pool and its jobs."),
    python=common.Python,
    facts=common.Facts,
)
def pool(**asked: Any) -> Answer:
    """Schedule several jobs on one pool of devices: gang them, share out, or mix."""
    from paceline.reporting.screens import decisions as report

    found = api.pool(**asked)
    return written_answer("pool", found, partial(report.pool_words, found))
