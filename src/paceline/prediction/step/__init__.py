"""How long a pass takes: host and device in time, clock, power and energy."""
