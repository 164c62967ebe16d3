"""Flags and commands, one module each: parse, call, print. The only importer of click; nothing imports this room."""

PROG = "specdec-exporter"
