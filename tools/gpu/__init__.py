"""Runs of real jobs on this machine, with their records and how far off predictions are."""
