"""How a job is spread over devices: the value, its canonical text, and what is legal."""
