"""The HTTP interface of the page. Every handler is thin: it reads the request and asks the project."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from timecycle.errors import InUseError, LabelError, TimecycleError
from timecycle.shortages import explain_error
from timecycle.ui import browse
from timecycle.ui.security import Access, Guard, refusal
from timecycle.ui.server import Server

STATIC = Path(__file__).parent / "static"
_FOREVER = {"cache-control": "private, max-age=86400, immutable"}
_MAX_HINTS = 200  # strokes of the assisted tool
_MAX_DIGITS = 12  # of frames, objects and revisions


Handler = Callable[[Server, Request], Awaitable[Response]]


def make_app(server: Server, access: Access) -> Starlette:
    """Make the application."""

    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await handler(server, request)

        return Route(path, endpoint, methods=[method])

    return Starlette(
        routes=[
            *(route(path, method, handler) for (method, path), handler in _HANDLERS.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={
            TimecycleError: _on_error,
            OSError: _on_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
        lifespan=server.lifespan,
    )


async def _on_error(_: Request, error: Exception) -> Response:
    known = explain_error(error)
    if known is None:  # never: the handler is registered for errors that can be explained
        raise error
    status = 409 if isinstance(known, InUseError) else 400
    return refusal(status, known.problem, known.remedy, type(known).__name__)


async def _on_http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    problem = error.detail if isinstance(error, HTTPException) else "unknown"
    return refusal(status, str(problem), "reload the page and try again")


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return refusal(400, "the request ended before all of it was sent", "reload the page and try again")


async def _on_bug(_: Request, error: Exception) -> Response:
    problem = f"this should not have happened: {type(error).__name__}"
    return refusal(500, problem, "reload the page; what the terminal shows is worth a report", "UnexpectedError")


# Handlers


async def _page(_: Server, __: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _state(server: Server, _: Request) -> Response:
    return JSONResponse(server.state())


async def _events(server: Server, _: Request) -> Response:
    return StreamingResponse(server.events.stream(), media_type="text/event-stream")


async def _browse(server: Server, request: Request) -> Response:
    return JSONResponse(browse.listing(_root(server), request.query_params.get("path", "")))


async def _open(server: Server, request: Request) -> Response:
    await server.open(browse.inside(_root(server), str((await _json(request)).get("path", ""))))
    return JSONResponse(server.state())


async def _frame(server: Server, request: Request) -> Response:
    picture = await server.opened().frame(_index(request))
    return Response(picture, media_type="image/jpeg", headers=_FOREVER)


async def _thumbnail(server: Server, request: Request) -> Response:
    picture = await server.opened().thumbnail(_index(request))
    return Response(picture, media_type="image/jpeg", headers=_FOREVER)


async def _run(server: Server, request: Request) -> Response:
    return JSONResponse(await server.opened().run_state(_number(request.query_params.get("since", "0"))))


async def _labels(server: Server, request: Request) -> Response:
    answer, png = await server.opened().labels(_index(request), before="before" in request.query_params)
    return Response(png, media_type="image/png") if png else JSONResponse(answer)


async def _mask(server: Server, request: Request) -> Response:
    return FileResponse(server.opened().mask_file(_index(request)), media_type="image/png")


async def _save_mask(server: Server, request: Request) -> Response:
    objects = [_number(one) for one in request.query_params.get("objects", "").split(",") if one]
    await server.opened().save_mask(_index(request), await request.body(), objects, _revision(request))
    return _changed(server)


async def _save_points(server: Server, request: Request) -> Response:
    points = (await _json(request)).get("points") or {}
    await server.opened().save_points(_index(request), points, _revision(request))
    return _changed(server)


async def _remove_annotation(server: Server, request: Request) -> Response:
    project = server.opened()
    async with project.lock:
        project.annotations.edit_frame(_index(request), None, revision=_revision(request))
    return _changed(server)


async def _save_setting(server: Server, request: Request) -> Response:
    value = (await _json(request)).get("value")
    await server.opened().save_setting(request.path_params["key"], value, _revision(request))
    return _changed(server)


async def _undo(server: Server, request: Request) -> Response:
    return await _replay(server, request, "undo")


async def _redo(server: Server, request: Request) -> Response:
    return await _replay(server, request, "redo")


async def _replay(server: Server, request: Request, direction: str) -> Response:
    project = server.opened()
    async with project.lock:
        replay = project.annotations.undo if direction == "undo" else project.annotations.redo
        key = await asyncio.to_thread(replay, revision=_revision(request))
    server.tell_changed()
    return JSONResponse({**server.state(), "key": key})


async def _assist(server: Server, request: Request) -> Response:
    hints = await _json(request)
    strokes = [hints.get(side) or () for side in ("inside", "outside")]
    if not all(isinstance(one, list | tuple) for one in strokes) or sum(map(len, strokes)) > _MAX_HINTS:
        raise LabelError("the strokes cannot be read, or there are too many", remedy="begin again with a box")
    region, mask = await server.opened().assist(_index(request), hints)
    return Response(mask, media_type="image/png", headers={"x-region": ",".join(map(str, region))})


async def _start_job(server: Server, request: Request) -> Response:
    project, asked = server.opened(), await _json(request)
    match request.path_params["verb"]:
        case "propagate":
            resume, overwrite = bool(asked.get("resume")), bool(asked.get("overwrite"))
            preset, direction = str(asked.get("preset", "default")), str(asked.get("direction", "both"))
            await project.propagate(preset, direction, resume=resume, overwrite=overwrite)
        case "correct":
            await project.correct()
        case "undo":
            await project.undo_correction()
        case "audit":
            await project.audit()
        case "check":
            await project.check()
        case "export":
            await project.export(str(asked.get("format", "")))
        case _:
            raise HTTPException(404, "there is no such job")
    return _changed(server)


async def _pause(server: Server, _: Request) -> Response:
    await server.jobs.interrupt()
    return JSONResponse(server.state())


async def _cancel(server: Server, _: Request) -> Response:
    """Stop the job; an unfinished propagation is forgotten, and the next one starts over."""
    verb = server.jobs.last.verb
    await server.jobs.interrupt()
    project = server.opened()
    if verb == "propagate" and (await project.run_state()).get("status") == "running":
        async with project.lock:
            await asyncio.to_thread(project.annotations.discard_run)
    return _changed(server)


async def _exported(server: Server, request: Request) -> Response:
    path = server.opened().exported(request.path_params["name"])
    return FileResponse(path, filename=path.name, content_disposition_type="attachment")


_HANDLERS: dict[tuple[str, str], Handler] = {
    ("GET", "/"): _page,
    ("GET", "/api/state"): _state,
    ("GET", "/api/events"): _events,
    ("GET", "/api/browse"): _browse,
    ("POST", "/api/open"): _open,
    ("GET", "/api/frames/{key}/{index}"): _frame,
    ("GET", "/api/thumbnails/{key}/{index}"): _thumbnail,
    ("GET", "/api/run"): _run,
    ("GET", "/api/labels/{index}"): _labels,
    ("GET", "/api/masks/{index}"): _mask,
    ("PUT", "/api/masks/{index}"): _save_mask,
    ("PUT", "/api/points/{index}"): _save_points,
    ("DELETE", "/api/annotations/{index}"): _remove_annotation,
    ("PUT", "/api/settings/{key}"): _save_setting,
    ("POST", "/api/undo"): _undo,
    ("POST", "/api/redo"): _redo,
    ("POST", "/api/assist/{index}"): _assist,
    ("POST", "/api/jobs/pause"): _pause,
    ("POST", "/api/jobs/cancel"): _cancel,
    ("POST", "/api/jobs/{verb}"): _start_job,
    ("GET", "/api/exports/{name}"): _exported,
}


# Requests and answers


def _changed(server: Server) -> Response:
    """Answer an edit, and tell the other tabs."""
    server.tell_changed()
    return JSONResponse(server.state())


def _root(server: Server) -> Path:
    if server.root is None:
        raise LabelError("only one video was opened", remedy="start `timecycle ui` with a folder to see others")
    return server.root


def _index(request: Request) -> int:
    return _number(request.path_params["index"])


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise LabelError(f"{text[:40]!r} is not a number of the page", remedy="reload the page")
    return int(text)


def _revision(request: Request) -> int:
    sent = request.headers.get("x-revision", "")
    if not sent:
        raise LabelError("the edit does not say what it changes", remedy="reload the page")
    return _number(sent)


async def _json(request: Request) -> dict[str, Any]:
    try:
        content = json.loads(await request.body() or b"{}")
        # What could not be sent back must not be kept: infinite numbers, halves of characters, endless nesting.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise LabelError("the request is not JSON", remedy="reload the page") from error
    if not isinstance(content, dict):
        raise LabelError("the request is not an object", remedy="reload the page")
    return content
