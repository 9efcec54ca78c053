"""Run the command line as ``python -m omniroute_litellm``."""

import sys

from omniroute_litellm.cli import main

sys.exit(main())
