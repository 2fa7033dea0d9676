"""``requant`` and ``python -m requant``. Nothing is imported here at first: an interruption while it is is no fault."""

from __future__ import annotations

import sys

#: 128 and the number of the signal, as shells count.
EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point of the command."""
    try:
        from requant import cli

        cli.main()
    except KeyboardInterrupt:  # while modules were imported
        sys.stderr.write("\nrequant: interrupted; nothing was done\n")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
