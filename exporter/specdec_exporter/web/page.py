"""The status page and the headers it is served with."""

from __future__ import annotations

import base64
import hashlib
import pkgutil
import re


def _load() -> bytes:
    page = pkgutil.get_data(__package__, "page.html")
    if page is None:  # a loader that cannot read data: never with a wheel, a checkout or a zip
        raise FileNotFoundError("page.html is not beside page.py")
    return page


def _hash_source(page: bytes, element: str) -> str:
    """The CSP source of the page's one inline ``element``: of its text exactly as it stands between the tags."""
    (text,) = re.findall(rb"<%b>(.*?)</%b>" % (element.encode(), element.encode()), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


#: One self-contained HTML document; its URLs are relative, so that it works below any path that ends with a slash.
PAGE: bytes = _load()

#: For the page's response. The policy lets the page run its own script and talk to its own origin, and nothing else.
SECURITY_HEADERS: dict[str, str] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_source(PAGE, 'script')}",
            f"style-src {_hash_source(PAGE, 'style')}",
            "connect-src 'self'",
            "img-src data:",  # the icon
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
