"""Flags and commands, one module per command. Only this room imports click, and no other room imports this one."""

PROG = "specdec-exporter"
EXIT_CODES = {"PASS": 0, "FAIL": 1, "WARN": 2}  # of every command, by the worst that was printed
BAD_USAGE = 64  # EX_USAGE of sysexits.h
