"""Say it: results become tables, charts and pages; computes nothing."""
