"""The edges: the command line and the web, thin over the public API."""
