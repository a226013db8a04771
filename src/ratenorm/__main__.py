"""`python -m ratenorm`, and what torchrun starts."""

import sys

from ratenorm.cli.main import main

sys.exit(main())
