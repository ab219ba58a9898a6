"""Serving a language model: what an engine's steps take, and what requests then see."""
