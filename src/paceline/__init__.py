"""paceline: which accelerator a deep-learning job needs, before anything is rented or bought.

Each verb of the command line is a function of the same name. Nothing is loaded before it is used:
importing paceline costs milliseconds, and no framework is ever imported into your process.

>>> import paceline
>>> [device.name for device in paceline.devices("A100 PCIe 80GB")]
['A100 PCIe 80GB']
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING

from paceline.release import __version__

if TYPE_CHECKING:
    from paceline.app.api.calibration import calibrate, calibrate_list, calibrate_undo, trials
    from paceline.app.api.catalog import devices, models, offers
    from paceline.app.api.decisions import bill, feed, fits, lifecycle, own, pool
    from paceline.app.api.diagnosis import diagnose
    from paceline.app.api.feeding import infer
    from paceline.app.api.machine import (
        ceilings,
        compare,
        doctor,
        export,
        measure,
        report,
        stacks_check,
        stacks_create,
        stacks_list,
        stacks_remove,
    )
    from paceline.app.api.planning import (
        deploy,
        plan,
        predict,
        scale,
        score,
        trace,
        why_not,
    )
    from paceline.app.api.prices import offers_history, offers_refresh, offers_rollback
    from paceline.app.api.running import run, runs_follow, runs_list, runs_show, runs_stop
    from paceline.app.api.stack import stack_check, stack_explain, stack_images, stack_resolve
    from paceline.app.api.training import train
    from paceline.app.output import to_dict, to_json
    from paceline.app.web.serving import web
    from paceline.errors import (
        DoesNotFitError,
        InvalidInputError,
        MissingFactError,
        NoOfferError,
        PacelineError,
        RegressionError,
        StackConflictError,
        UnknownNameError,
        WorkerError,
    )
    from paceline.planning.goal.files import read_plan, write_plan

__all__ = [
    "DoesNotFitError",
    "InvalidInputError",
    "MissingFactError",
    "NoOfferError",
    "PacelineError",
    "RegressionError",
    "StackConflictError",
    "UnknownNameError",
    "WorkerError",
    "__version__",
    "bill",
    "calibrate",
    "calibrate_list",
    "calibrate_undo",
    "ceilings",
    "compare",
    "deploy",
    "devices",
    "diagnose",
    "doctor",
    "export",
    "feed",
    "fits",
    "infer",
    "lifecycle",
    "measure",
    "models",
    "offers",
    "offers_history",
    "offers_refresh",
    "offers_rollback",
    "own",
    "plan",
    "pool",
    "predict",
    "read_plan",
    "report",
    "run",
    "runs_follow",
    "runs_list",
    "runs_show",
    "runs_stop",
    "scale",
    "score",
    "stack_check",
    "stack_explain",
    "stack_images",
    "stack_resolve",
    "stacks_check",
    "stacks_create",
    "stacks_list",
    "stacks_remove",
    "to_dict",
    "to_json",
    "trace",
    "train",
    "trials",
    "web",
    "why_not",
    "write_plan",
]

_CATALOG = ("devices", "models", "offers")
_CALIBRATION = ("calibrate", "calibrate_list", "calibrate_undo", "trials")
_PRICES = ("offers_history", "offers_refresh", "offers_rollback")
_DECISIONS = ("bill", "feed", "fits", "lifecycle", "own", "pool")
_MACHINE = ("ceilings", "compare", "doctor", "export", "measure", "report")
#: Where each public name is defined.
HOMES = {
    **dict.fromkeys(__all__, "paceline.app.api.planning"),
    **dict.fromkeys(_CATALOG, "paceline.app.api.catalog"),
    **dict.fromkeys(_CALIBRATION, "paceline.app.api.calibration"),
    **dict.fromkeys(_PRICES, "paceline.app.api.prices"),
    **dict.fromkeys(_DECISIONS, "paceline.app.api.decisions"),
    **dict.fromkeys(_MACHINE, "paceline.app.api.machine"),
    **dict.fromkeys((n for n in __all__ if n.startswith("stacks_")), "paceline.app.api.machine"),
    **dict.fromkeys((n for n in __all__ if n.startswith("stack_")), "paceline.app.api.stack"),
    "train": "paceline.app.api.training",
    "web": "paceline.app.web.serving",
    "infer": "paceline.app.api.feeding",
    "diagnose": "paceline.app.api.diagnosis",
    **dict.fromkeys(("read_plan", "write_plan"), "paceline.planning.goal.files"),
    **dict.fromkeys(("to_dict", "to_json"), "paceline.app.output"),
    **dict.fromkeys((n for n in __all__ if n.startswith("run")), "paceline.app.api.running"),
    **dict.fromkeys((n for n in __all__ if n.endswith("Error")), "paceline.errors"),
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(HOMES[name]), name)
    if not HOMES[name].startswith("paceline.app.api."):
        return found
    from paceline.app.api.arguments import spoken

    return spoken(found) if isinstance(found, FunctionType) else found


def __dir__() -> list[str]:
    return __all__
