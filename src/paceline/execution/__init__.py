"""Do it: probe the machine, keep isolated environments, measure, train."""
