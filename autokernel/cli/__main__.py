"""``python -m autokernel.cli`` is the same as ``autokernel``."""

import sys

from autokernel.cli.app import main

sys.exit(main())
