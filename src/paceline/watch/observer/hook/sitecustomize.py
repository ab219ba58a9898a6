"""Runs first in every Python that a watched command starts, and puts the observer in.

Standard library only. The folder of this file stands on PYTHONPATH, so that the programs which the
command starts are observed too; nothing else lies in it, so that no name of the user's is hidden.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _observe(here):
    folder = os.environ.get("PACELINE_RUN_FOLDER")
    if not folder or not os.path.isdir(folder):
        return
    try:
        path = os.path.join(os.path.dirname(here), "observer.py")
        spec = importlib.util.spec_from_file_location("_paceline_observer", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        module.begin(folder)
    except Exception:  # noqa: BLE001  The script runs on, whatever happens to its observer.
        pass


def _run_the_other(here):
    """The sitecustomize that would have run without this one."""
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    if importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path) is None:
        return
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except BaseException:
        sys.modules["sitecustomize"] = own
        raise


_HERE = os.path.dirname(os.path.abspath(__file__))
_observe(_HERE)
_run_the_other(_HERE)
