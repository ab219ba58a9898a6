"""One device: step time on two timelines, memory, energy, intervals; calibration as data."""
