"""``python -m outlast.cli``."""

from outlast.cli import main

if __name__ == "__main__":
    main()
