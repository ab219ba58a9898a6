"""What devices of a cluster tell each other, over which links, and how long it takes."""
