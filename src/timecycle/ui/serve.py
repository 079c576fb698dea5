"""Serve the page on this machine, until Ctrl-C."""

import ipaddress
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from timecycle.errors import SettingsError
from timecycle.extras import import_extra

if TYPE_CHECKING:
    import uvicorn

_LAST_PORT = 65535


def serve(
    path: Path,
    out: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Serve the page of a video, a run or a folder; returns its address once it is stopped by Ctrl-C."""
    for module in ("starlette", "uvicorn"):
        import_extra(module, extra="ui")
    import uvicorn  # noqa: PLC0415, here: it is an extra

    from timecycle.ui.app import make_app  # noqa: PLC0415
    from timecycle.ui.security import Access  # noqa: PLC0415
    from timecycle.ui.server import Server  # noqa: PLC0415

    _check(path, host, port)
    listener = _listen(host, port)
    access = Access(host, listener.getsockname()[1])
    try:  # from the address on: Ctrl-C may come at once
        say(f"open {access.url}")
        say("stop with Ctrl-C; nothing is lost")
        if browser:
            threading.Thread(target=webbrowser.open, args=(access.url,), daemon=True).start()
        server = Server(path, out)
        config = uvicorn.Config(
            make_app(server, access),
            log_level="warning",
            access_log=False,  # it would print the token
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        _uvicorn_server(config, server.events.close).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    return access.url


def _uvicorn_server(config: "uvicorn.Config", before_shutdown: Callable[[], None]) -> "uvicorn.Server":
    """Make a server that first ends the streams that would never end by themselves."""
    import uvicorn  # noqa: PLC0415

    class Stopping(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            before_shutdown()
            await super().shutdown(sockets)

    return Stopping(config)


def _check(path: Path, host: str, port: int) -> None:
    if not path.exists() and not any(sign in path.name for sign in "*?[%#"):
        raise SettingsError(f"there is no file or folder {path}", remedy="check the path for typing errors")
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        unspecified = not host
    if unspecified:
        raise SettingsError(
            f"--host {host} stands for every address of this machine",
            remedy="give the one address or name that browsers will use, so that others can be refused",
        )
    if not 0 <= port <= _LAST_PORT:  # the system would take another one in its place
        raise SettingsError(
            f"there is no port {port}", remedy=f"choose a --port from 1 to {_LAST_PORT}, or leave it out for a free one"
        )


def _listen(host: str, port: int) -> socket.socket:
    """Bind the address before it is printed; port 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        raise SettingsError(
            f"cannot listen at {host}, port {port}: {error.strerror}", remedy="choose another --port, or leave it out"
        ) from error
    return listener
