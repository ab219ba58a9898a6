"""Arrivals and queues over Steps: requests come, an engine steps, percentiles come out."""
