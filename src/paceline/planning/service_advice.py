"""What to change of a service that was chosen, and what its requests see at other loads."""

from __future__ import annotations

from paceline.planfile import LoadPoint
from paceline.planning.queues import limits_of, load_of, replicas_of
from paceline.planning.search.all_candidates import Search
from paceline.simulation.queue.figures import ServiceFigures, seconds_at
from paceline.simulation.queue.one_setting import best_gains, gains_of
from paceline.simulation.queue.service import steady

#: Of what a service can do at most: loads at which its requests are watched.
_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99)


def settings_words(search: Search, row: int) -> tuple[str, ...]:
    """The one setting to change with its gain, and a format that gains more; may be empty."""
    if not isinstance(search.services.get(row), ServiceFigures):
        return ()
    limits = limits_of(search)
    gains = gains_of(
        replicas_of(search, row), load_of(search), limits, calibration=search.question.calibration
    )
    return tuple(gain.text(is_limited=bool(limits)) for gain in best_gains(gains))


def load_curve(search: Search, row: int) -> tuple[LoadPoint, ...]:
    """What requests of a service see, from few of them to as many as it can answer."""
    found = search.services.get(row)
    if not isinstance(found, ServiceFigures):
        return ()
    percentile, points = search.goal.percentile, []
    for share in _SHARES:
        rate_per_s = share * found.capacity_per_s
        each_per_s = rate_per_s / found.num_replicas
        seen = steady(found.table, load_of(search).at_rate(each_per_s))
        per_token = seen.per_token if found.writes else seen.request
        first_s = seconds_at(seen.first_token, percentile)
        points.append(
            LoadPoint(
                requests_per_s=rate_per_s,
                ttft_s=first_s if found.writes else None,
                latency_s=seconds_at(per_token, percentile),
                request_s=seconds_at(seen.request, percentile),
            )
        )
    return tuple(points)
