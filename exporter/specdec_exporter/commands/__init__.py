"""Flags and commands, one module per command. Only this room imports click, and no other room imports this one."""

PROG = "specdec-exporter"
