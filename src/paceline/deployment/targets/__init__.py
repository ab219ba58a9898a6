"""Where a plan is launched: one file per target."""
