"""Lets ``python -m paceline`` work."""

import sys

from paceline.app.cli import main

sys.exit(main())
