"""Write it down: a plan becomes launch files, as text."""
