"""Who may talk to the window's server: a browser that holds the secret of this start, asking our own address.

The trap: a page on any web site can send requests to 127.0.0.1, and by rebinding its name it can read the answers.
Hence three checks before the application sees anything: the Host header, the Origin header, and a secret that travels
once in the address and from then on in a cookie that scripts cannot read. Cookies do not tell ports apart, so the port
is part of the cookie's name. Proof: tests/ui/test_gate.py and, in a real browser, tests/browser.
"""

import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ui import messages

HOSTS = ("127.0.0.1", "localhost")
SECRET_PARAMETER = "t"


def guarded(app: ASGIApp, *, port: int, secret: str) -> ASGIApp:
    """`app` behind the host check (400) and the secret gate (403)."""
    return TrustedHostMiddleware(
        SecretGate(app, port=port, secret=secret), allowed_hosts=list(HOSTS), www_redirect=False
    )


class SecretGate:
    """ASGI middleware that lets a request through when it carries the secret's cookie and no foreign Origin."""

    def __init__(self, app: ASGIApp, *, port: int, secret: str):
        self._app = app
        self._secret = secret
        self._cookie = f"vignette_{port}"
        self._origins = {f"http://{host}:{port}" for host in HOSTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        response = self._answer(scope, headers)
        if response is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await response(scope, receive, send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Our own answer, or None when the request may pass."""
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return _forbidden(headers)
        if scope["type"] == "http" and scope["path"] == "/" and self._matches(_secret_in_address(scope)):
            return self._welcome()
        return None if self._matches(_cookie_value(headers, self._cookie)) else _forbidden(headers)

    def _matches(self, value: str | None) -> bool:
        return value is not None and secrets.compare_digest(value.encode(), self._secret.encode())

    def _welcome(self) -> Response:
        """To the page itself, so that the secret leaves the address bar and the history."""
        response = RedirectResponse("/", status_code=303, headers={"Referrer-Policy": "no-referrer"})
        response.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response


def _forbidden(headers: Headers) -> Response:
    language = messages.choose_language(headers.get("accept-language"))
    return PlainTextResponse(messages.text(language, "gate.forbidden"), status_code=403)


def _secret_in_address(scope: Scope) -> str | None:
    values = parse_qs(scope["query_string"].decode("latin-1")).get(SECRET_PARAMETER)
    return values[0] if values else None


def _cookie_value(headers: Headers, name: str) -> str | None:
    cookies = SimpleCookie()
    try:
        cookies.load(headers.get("cookie", ""))
    except CookieError:
        return None
    return cookies[name].value if name in cookies else None
