"""Which software works on which device: rules and facts in, combinations or conflicts out."""
