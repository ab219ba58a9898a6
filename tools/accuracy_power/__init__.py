"""Predicted power and energy against published measurements."""
