"""The real vLLM's fixtures, which the tests beside it have, too."""

from vllm.conftest import installation, language, models

__all__ = ["installation", "language", "models"]
