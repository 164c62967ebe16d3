#!/usr/bin/env bash
# Makes the file system of a base image: base.sh OUTPUT.tar. It stands in for python:3.11-slim-bookworm where no registry
# can be reached: Debian's Python of the same release, in the same place, linked to the same libraries of the same Debian.
set -euo pipefail
mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3.11-venv --customize-hook='
    cd "$1"
    rm -rf usr/local/lib/python3.11
    mv usr/lib/python3.11 usr/local/lib/python3.11
    mv usr/bin/python3.11 usr/local/bin/
    rm -f usr/bin/python3 usr/bin/pydoc3* usr/local/lib/python3.11/EXTERNALLY-MANAGED usr/local/lib/python3.11/sitecustomize.py
    ln -s python3.11 usr/local/bin/python3
    ln -s python3 usr/local/bin/python
    rm -rf var/lib/apt/lists/* var/cache/apt/* usr/share/locale usr/share/man' bookworm "$1"
