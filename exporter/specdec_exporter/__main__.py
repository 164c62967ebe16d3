"""``python -m specdec_exporter``."""

from specdec_exporter.commands.cli import main

if __name__ == "__main__":
    main()
