"""One device: step time on two timelines, memory, energy, intervals; calibration as data."""

from paceline.predict.calibration import Calibration, builtin_calibration
from paceline.predict.devices import DeviceTable
from paceline.predict.prediction import Bound, Knowledge, Points, StepPrediction
from paceline.predict.step import abstentions, predict_pass

__all__ = [
    "Bound",
    "Calibration",
    "DeviceTable",
    "Knowledge",
    "Points",
    "StepPrediction",
    "abstentions",
    "builtin_calibration",
    "predict_pass",
]
