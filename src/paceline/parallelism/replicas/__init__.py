"""Data parallel: every rank has items of its own, and gradients are exchanged."""
