"""Who may talk to the server: one person with the token, from this very page.

A request from elsewhere fails four times over. The Host header must name this server, so that a foreign name that
resolves here is refused (DNS rebinding). The cookie, which only the token buys, is SameSite=Strict, so that no other
site can send it. A request that changes something must have this server's Origin, and a header that no form and no
foreign script can send without asking first.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-timecycle"  # on every request that changes something

_CHANGES_NOTHING = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
MAX_BODY_BYTES = 64 << 20  # a 16-bit mask of the largest frame compresses to far less
MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True)
class Access:
    """What a request must show: the address of the server, and the token or the cookie that it buys."""

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between the ports of a host, and two servers must not log each other out."""
        return f"timecycle-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        loopback = {"127.0.0.1", "localhost"} if self.host in ("127.0.0.1", "localhost") else {self.host}
        return frozenset(f"{f'[{name}]' if ':' in name else name}:{self.port}" for name in loopback)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?{urlencode({'token': self.token})}"


class Guard:
    """Refuse every request that does not come from the person who started the server."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(scope) or self._exchange(scope) or self._without_cookie(scope)
            await (answer or self._app)(scope, _capped(scope, receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers, access = Headers(scope=scope), self._access
        host = headers.get("host", "")
        if host not in access.hosts or len(headers.getlist("host")) != 1:
            return refusal(421, f"the name {host[:80]!r} is not this server's", "open the address the command printed")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return refusal(403, "the request comes from another site", "open the address the command printed")
        elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        # A link on another site may still lead to the page itself, with the token.
        if elsewhere and (scope["path"] != "/" or scope["method"] not in _CHANGES_NOTHING):
            return refusal(403, "the request comes from another site", "open the address the command printed")
        if scope["method"] not in _CHANGES_NOTHING and (origin is None or headers.get(HEADER) != "1"):
            return refusal(403, "the request does not come from the page", "reload the page and try again")
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 12 or int(declared) > _most_bytes(headers):
            return refusal(413, "too much was sent at once", "send a smaller file")
        return None

    def _exchange(self, scope: Scope) -> Response | None:
        """Give the cookie for the token, and take the token out of the address."""
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] != "/" or scope["method"] != "GET" or not tokens:
            return None
        if not secrets.compare_digest(tokens[0].encode(), self._access.token.encode()):
            return None
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._access.cookie_name, self._access.cookie, httponly=True, samesite="strict", path="/")
        return answer

    def _without_cookie(self, scope: Scope) -> Response | None:
        sent = _cookie(Headers(scope=scope).get("cookie", ""), self._access.cookie_name)
        if secrets.compare_digest(sent.encode(), self._access.cookie.encode()):
            return None
        return refusal(401, "this browser has no access", "open the address the command printed, with its token")


def refusal(status: int, problem: str, remedy: str, kind: str = "Refused") -> JSONResponse:
    """Answer with an error as the page shows it: what is wrong, and what to do."""
    return JSONResponse({"error": {"kind": kind, "problem": problem, "remedy": remedy}}, status_code=status)


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _most_bytes(headers: Headers) -> int:
    is_json = headers.get("content-type", "").startswith("application/json")
    return MAX_JSON_BYTES if is_json else MAX_BODY_BYTES


def _capped(scope: Scope, receive: Receive) -> Receive:
    """Stop reading a body that is too large but does not declare its length."""
    most, read = _most_bytes(Headers(scope=scope)), 0

    async def capped() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            raise HTTPException(413, "too much was sent at once")
        return message

    return capped


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return with_headers
