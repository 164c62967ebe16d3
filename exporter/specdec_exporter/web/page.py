"""The status page and the headers it is served with."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path


def _hash_source(page: bytes, element: str) -> str:
    """Return the CSP source of the page's only inline ``element``: the hash of the text between its tags."""
    (text,) = re.findall(rb"<%b>(.*?)</%b>" % (element.encode(), element.encode()), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


#: One self-contained HTML document. Its URLs are relative, so it works below any path that ends with a slash.
PAGE: bytes = Path(__file__).with_name("page.html").read_bytes()

#: Headers of the page. The policy allows its own script and style, and requests to its own origin.
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
