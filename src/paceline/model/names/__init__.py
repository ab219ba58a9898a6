"""Which model a name means, and what is known of it before it is traced."""
