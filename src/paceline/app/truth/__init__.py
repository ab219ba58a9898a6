"""What the verbs do that measure, calibrate and report on this machine."""
