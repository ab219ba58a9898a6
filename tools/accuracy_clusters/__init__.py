"""Predictions of jobs on several devices against published measurements of clusters."""
