"""The command: ``python -m anamnesis``, and the script ``anamnesis``."""

from __future__ import annotations

import signal
import sys

from . import _core


def main() -> int:
    # the command handles an interrupt itself, from the moment on at which it has something to clean up
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.command(["anamnesis", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
