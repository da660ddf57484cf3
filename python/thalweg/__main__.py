"""The program `thalweg`, the same as the binary of that name."""

import os
import signal
import sys

from thalweg import _thalweg


def main() -> None:
    # Python's own handler only sets a flag for the interpreter, which does not run during the call.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _thalweg.main(["thalweg", *sys.argv[1:]])
    # A thread may still wait for something that never comes, such as a line from a terminal.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
