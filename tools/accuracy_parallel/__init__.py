"""Many-device predictions against published measurements, test by test."""
