"""The start and the end of every command. Plain ``serve`` runs without click."""

from __future__ import annotations

import gc
import os
import sys

from specdec_exporter.commands import PROG
from specdec_exporter.errors import SpecdecError
from specdec_exporter.serving.lean import load_when_used


def main() -> None:
    """Run a command and exit: 1 with one line on stderr after an error, 2 after bad usage."""
    load_when_used()
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except SpecdecError as error:
        code = _complain(str(error))
    except Exception as error:
        if os.environ.get("SPECDEC_TRACEBACK"):
            raise
        code = _complain(f"internal error: {type(error).__name__}: {error} (SPECDEC_TRACEBACK=1 shows where)")
    gc.freeze()  # saves the last garbage collection, a tenth of a short command's time
    sys.exit(code)


def _complain(text: str) -> int:
    sys.stderr.write(f"{PROG}: {text}\n")
    return 1


def _run(arguments: list[str]) -> int:
    """Serve if the arguments are plain ones of ``serve``, else let click read them; return the exit code."""
    if not arguments or arguments[0].startswith("-") or arguments[0] == "serve":
        from specdec_exporter.commands import serveflags

        plain = serveflags.plain_flags(arguments[1:] if arguments[:1] == ["serve"] else arguments, os.environ)
        if plain is not None:
            return serveflags.start(serveflags.settings_loader(plain.pop("config_file"), plain))
    from specdec_exporter.commands.cli import run

    return run()
