"""Many devices: strategies, collectives, sharding, schedules and overlap."""
