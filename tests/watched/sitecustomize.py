"""Python imports this by itself where its folder is on PYTHONPATH: log the sockets and file changes of a process.

Processes that it starts inherit the path, and log too. Libraries in C are not seen: what they leave behind is found in
the folders afterwards.
"""

import json
import os
import socket
import sys

_LOG = os.open(os.environ["WATCHED_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Which arguments of an event are paths, and which the folder that a relative path begins at.
_PATHS = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.utime": ((0, 3),),
}
_NETWORK = ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg")
_NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request")


def _path(path: object, folder: object = None) -> str | None:
    if isinstance(path, int):  # a file that is open already
        return None
    name = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    return os.path.abspath(name)


def _seen(event: str, arguments: tuple) -> list[str]:
    """What an event does: the paths it changes, or an address."""
    if event == "open":
        path, _, flags = arguments
        return [_path(path)] if int(flags or 0) & _WRITES else []
    if event in _PATHS:
        return [_path(arguments[path], None if at is None else arguments[at]) for path, at in _PATHS[event]]
    if event in _NETWORK:
        return [repr(arguments[1])] if arguments[0].family in _INTERNET else []
    if event == "socket.__new__":
        return [f"family {arguments[1]}"] if arguments[1] in _INTERNET else []
    if event in _NAMES or event == "timecycle.command":
        return [str(arguments[0])]
    return []


def _watch(event: str, arguments: tuple) -> None:
    for what in _seen(event, arguments):
        if what is not None:
            os.write(_LOG, (json.dumps({"pid": os.getpid(), "event": event, "what": what}) + "\n").encode())


sys.addaudithook(_watch)
