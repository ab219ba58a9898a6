"""Readers: one folder per framework, run in the Python that has that framework."""
