"""Saves: the state of a run, committed whole with digests or not at all."""
