"""One device: step time on two timelines, memory, energy, intervals; calibration as data."""

from paceline.predict.calibrate import calibrate, read_updates, residual, undo, write_updates
from paceline.predict.calibration import Calibration, Residual, Update, builtin_calibration
from paceline.predict.devices import DeviceTable
from paceline.predict.prediction import Bound, Knowledge, Points, StepPrediction
from paceline.predict.step import abstentions, predict_pass

__all__ = [
    "Bound",
    "Calibration",
    "DeviceTable",
    "Knowledge",
    "Points",
    "Residual",
    "StepPrediction",
    "Update",
    "abstentions",
    "builtin_calibration",
    "calibrate",
    "predict_pass",
    "read_updates",
    "residual",
    "undo",
    "write_updates",
]
