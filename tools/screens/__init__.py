"""Pictures of the screens that people see first."""
