"""What people read in a terminal. The only importer of rich; the commands call the ``print_*`` functions."""
