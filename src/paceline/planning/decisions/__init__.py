"""Decisions over the steps of many jobs: how many devices, and which runs to measure first."""
