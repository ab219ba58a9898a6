"""The op graph: ops, storages, polynomials in batch and length, and what a program costs."""
