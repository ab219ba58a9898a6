"""What ``paceline`` alone shows: three commands to type, this machine, the date of the facts."""

from __future__ import annotations

_SCREEN = """\
paceline {version} · catalogue {catalog} (prices to {priced_to}) · calibration {calibration}
This machine: {machine} (paceline doctor tells more)

  paceline plan resnet50 --deadline 24h        which GPU, how many, where, how long, how much
  paceline predict gpt2 --device a100,4090     time and memory on the devices you name
  paceline measure resnet18                    the truth on this machine

Your own model: paceline plan mymodule:build --samples 1M --epochs 10
Everything else: paceline --help"""


def home_text() -> str:
    """The first screen."""
    from paceline.catalog.load import load_catalog
    from paceline.execution.machine.probe import describe_machine, probe_machine
    from paceline.prediction.calibration.fitted import builtin_calibration
    from paceline.release import __version__

    catalog = load_catalog()
    priced_to = max(offer.priced_on for offer in catalog.offers if offer.priced_on is not None)
    return _SCREEN.format(
        version=__version__,
        catalog=catalog.version,
        priced_to=priced_to,
        calibration=builtin_calibration().name,
        machine=describe_machine(probe_machine(catalog)),
    )
