"""The studio's page: its built files, held in memory, and the rules that a browser keeps while it shows them.

No path of a request reaches the file system: what is served was read at the start, by the names that the
build gave.
"""

import gzip
import hmac
import mimetypes
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.errors import InputError
from glassformer.server.errors import ApiError
from glassformer.server.schemas import Request as Body
from glassformer.server.settings import Settings

BUILD = "make studio"
INDEX = "index.html"
SESSION = "/studio/session"
TOUR = "/tour/"  # beside the page: what `--demo` writes into a folder; it is not served
# Svelte makes elements from its own templates, under a Trusted Types policy of this name; nothing else may.
SHARED_RULES = (
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types svelte-trusted-html",
)
RULES = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "frame-ancestors 'none'",
        *SHARED_RULES,
    ]
)
PAGE = {
    "content-security-policy": RULES,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
YEAR = "public, max-age=31536000, immutable"  # of files whose names change with their content
SMALL = 512  # bytes below which compressing is not worth a header


@dataclass(frozen=True)
class File:
    """A file of the page, as it is and compressed."""

    content: bytes
    kind: str
    lasting: bool

    @cached_property
    def small(self) -> bytes:
        """Its content, compressed."""
        return gzip.compress(self.content, 6, mtime=0)

    def response(self, *, compressed: bool) -> Response:
        """The file as a response."""
        headers = {**PAGE, "vary": "accept-encoding"}
        headers["cache-control"] = YEAR if self.lasting else "no-cache"
        if not compressed or len(self.content) <= SMALL:
            return Response(self.content, headers=headers, media_type=self.kind)
        headers["content-encoding"] = "gzip"
        return Response(self.small, headers=headers, media_type=self.kind)


def built_folder() -> Traversable:
    """Where the page is; an error that names the command if it was never built."""
    folder = resources.files("glassformer.server") / "static"
    if not (folder / INDEX).is_file():
        raise InputError(
            f"the studio's page is not built: run `{BUILD}` in the source folder (it needs Node), or install"
            " a released wheel, which carries it"
        )
    return folder


def built_files() -> dict[str, File]:
    """The files of the page by their paths."""
    return {path: file for path, file in _found(built_folder(), "") if not path.startswith(TOUR)}


def _found(folder: Traversable, before: str) -> list[tuple[str, File]]:
    found = []
    for one in folder.iterdir():
        path = f"{before}/{one.name}"
        if one.is_dir():
            found += _found(one, path)
        else:
            kind = mimetypes.guess_type(one.name)[0] or "application/octet-stream"
            if kind == "application/javascript":  # as some systems list it
                kind = "text/javascript"
            found.append((path, File(one.read_bytes(), kind, lasting=path.startswith("/assets/"))))
    return found


@dataclass(frozen=True)
class Door:
    """What lets a browser in: a token that the address has once, and the cookie that it is exchanged for.

    Both are new with every process, so nothing that an earlier one gave out is good for this one.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class SessionRequest(Body):
    """`POST /studio/session`"""

    token: Annotated[str, Field(max_length=200)]


def router(settings: Settings, door: Door, *, files: Mapping[str, File]) -> APIRouter:
    """The page at `/`, its files, and the exchange of the token."""
    routes = APIRouter(include_in_schema=False)

    @routes.post(SESSION, status_code=204)
    async def session(body: SessionRequest) -> Response:
        """Exchange the token of the address for a cookie of this process."""
        if not hmac.compare_digest(body.token.encode("utf-8", "replace"), door.token.encode()):
            message = "this address is of an earlier start; open the one that `glass studio` printed last"
            raise ApiError(401, message, code="invalid_token", param="token")
        answer = Response(status_code=204)
        answer.set_cookie(settings.cookie, door.session, path="/", httponly=True, samesite="strict")
        return answer

    for path, file in files.items():
        address = "/" if path == f"/{INDEX}" else path
        routes.add_api_route(address, _sender(file), methods=["GET", "HEAD"])
    return routes


def _sender(file: File):  # type: ignore[no-untyped-def]  # fastapi reads the annotations of what it returns
    async def send(request: Request) -> Response:
        accepted = request.headers.get("accept-encoding", "")
        return file.response(compressed="gzip" in accepted)

    return send


def public_paths(files: Mapping[str, File]) -> frozenset[str]:
    """What may be asked for without a cookie: the page itself, which holds no user's data."""
    return frozenset({"/", SESSION, *files})
