"""Which models of two libraries are traced, and whether their published sizes are met."""
