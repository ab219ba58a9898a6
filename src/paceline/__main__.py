"""Lets ``python -m paceline`` work."""

import sys

from paceline.app.main import main

sys.exit(main())
