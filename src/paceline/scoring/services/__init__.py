"""Rows of what serves requests: their load, their engine, and what requests see of it."""
