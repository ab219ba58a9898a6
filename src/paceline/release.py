"""The release of this package: what plan files and launch files name as their writer."""

__version__ = "0.1.0"
