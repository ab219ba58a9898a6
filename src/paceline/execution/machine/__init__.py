"""What this machine is, what its sensors say, and what is wrong with it."""
