"""Reports for people. Only this room imports rich; the commands call its ``print_*`` and ``write_*`` functions."""
