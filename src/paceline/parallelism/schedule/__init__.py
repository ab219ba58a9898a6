"""Pipelines: blocks in stages, micro-batches in order, and the bubbles between them."""
