"""Predictions of one device against published measurements, each device held out in turn."""
