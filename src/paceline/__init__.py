"""paceline: which accelerator a deep-learning job needs, before anything is rented or bought.

Each verb of the command line is a function of the same name. Nothing is loaded before it is used:
importing paceline costs milliseconds, and no framework is ever imported into your process.

>>> import paceline
>>> [device.name for device in paceline.devices("A100 PCIe 80GB")]
['A100 PCIe 80GB']
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from paceline.release import __version__

if TYPE_CHECKING:
    from paceline.app.api import (
        deploy,
        devices,
        models,
        offers,
        plan,
        predict,
        scale,
        score,
        trace,
        why_not,
    )
    from paceline.app.api_calibrate import calibrate, calibrate_list, calibrate_undo, trials
    from paceline.app.api_decisions import bill, feed, fits, lifecycle, own, pool
    from paceline.app.api_machine import (
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
    from paceline.app.api_stack import stack_check, stack_explain, stack_images, stack_resolve
    from paceline.app.output import to_dict, to_json
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
    from paceline.plan import read_plan, write_plan

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
    "doctor",
    "export",
    "feed",
    "fits",
    "lifecycle",
    "measure",
    "models",
    "offers",
    "own",
    "plan",
    "pool",
    "predict",
    "read_plan",
    "report",
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
    "trials",
    "why_not",
    "write_plan",
]

#: Where each public name is defined.
HOMES = {
    **dict.fromkeys(__all__, "paceline.app.api"),
    **dict.fromkeys(
        (name for name in __all__ if name.startswith("calibrate")), "paceline.app.api_calibrate"
    ),
    "trials": "paceline.app.api_calibrate",
    **dict.fromkeys(("read_plan", "write_plan"), "paceline.plan"),
    **dict.fromkeys(("to_dict", "to_json"), "paceline.app.output"),
    **dict.fromkeys(
        ("bill", "feed", "fits", "lifecycle", "own", "pool"), "paceline.app.api_decisions"
    ),
    **dict.fromkeys(
        ("ceilings", "compare", "doctor", "export", "measure", "report"), "paceline.app.api_machine"
    ),
    **dict.fromkeys(
        (name for name in __all__ if name.startswith("stacks_")), "paceline.app.api_machine"
    ),
    **dict.fromkeys(
        (name for name in __all__ if name.startswith("stack_")), "paceline.app.api_stack"
    ),
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "paceline.errors"),
}
#: Rooms whose name is also a verb.
_VERB_ROOMS = frozenset({"deploy", "plan", "predict", "report", "trace"})


class _VerbRoom(ModuleType):
    """A room whose name is also a verb: ``paceline.plan(...)`` plans."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function of the public API that has the room's name."""
        name = self.__name__.rpartition(".")[2]
        verb = getattr(import_module(HOMES[name]), name)
        return verb(*args, **kwargs)


class _Package(ModuleType):
    """Makes verb rooms callable at the moment the import system attaches them."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _VERB_ROOMS and isinstance(value, ModuleType):
            value.__class__ = _VerbRoom
        super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in _VERB_ROOMS:
        return import_module(f"{__name__}.{name}")
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__


sys.modules[__name__].__class__ = _Package
