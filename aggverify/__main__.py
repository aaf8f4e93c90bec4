"""``python -m aggverify``."""

from aggverify.cli import main

if __name__ == "__main__":
    main()
