"""``python -m aggverify``, and the command's entry point."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command, or report why its own imports fail."""
    try:
        from aggverify.cli import main as command
    except Exception as error:
        from aggverify.shadowed import shadowed

        if (why := shadowed(error)) is None:
            raise
        sys.stderr.write(f"aggverify: error: {why}\n")
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()
