"""`python -m labkit` is the command `labkit`."""

from __future__ import annotations

import sys

from labkit.cli import main

sys.exit(main())
