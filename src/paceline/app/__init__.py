"""The edges: the command line, one verb per file, thin over the public API."""
