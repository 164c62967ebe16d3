"""The releases of Alertmanager, as its tests have them."""

from alertmanager.conftest import release

__all__ = ["release"]
