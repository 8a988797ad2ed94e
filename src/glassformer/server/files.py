"""`/v1/files`: files to fine-tune on. They live in one folder, under ids that are made here.

What a client calls a file is kept as a text and never becomes a path. A file is checked as it arrives, and
kept whole or not at all.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from glassformer.durable import replace_file, sync
from glassformer.errors import GlassError, InputError
from glassformer.files import read_json
from glassformer.server import training_file
from glassformer.server.errors import ApiError, invalid
from glassformer.server.multipart import Multipart, Part
from glassformer.server.schemas import page
from glassformer.server.state import ClientGone, State

FILE_ID = re.compile(r"file-[0-9a-f]{24}")
PURPOSE = "fine-tune"
MOST_FILES = 1000
MOST_FIELD = 4096  # bytes of a field beside the file
LONGEST_NAME = 255  # characters
ABANDONED = 24 * 3600  # seconds after which no upload can still be running
CHUNK = 1 << 16
FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "lines of JSON (.jsonl)"},
        "purpose": {"type": "string", "enum": [PURPOSE]},
    },
}


@dataclass(frozen=True)
class Kept:
    """A file that was uploaded."""

    id: str
    filename: str
    bytes: int
    created_at: int
    examples: int

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's file object."""
        about = {"object": "file", "purpose": PURPOSE, "status": "processed", "status_details": None}
        return {**vars(self), **about, "expires_at": None}


class FileStore:
    """The folder of uploaded files: `ID.jsonl` is one, and `ID.json`, written after it, is what is known."""

    def __init__(self, folder: Path, *, most: int) -> None:
        """`most` is how many bytes all files together may have."""
        self.folder, self.most = folder, most

    def list(self) -> list[Kept]:
        """All files, the oldest first."""
        names = (path.stem for path in self.folder.glob("file-*.json"))
        found = [self.find(name) for name in names]
        return sorted((one for one in found if one is not None), key=lambda one: (one.created_at, one.id))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.bytes for one in self.list())

    def find(self, id: str) -> Kept | None:
        """A file by its id; what cannot be an id is never looked for."""
        if FILE_ID.fullmatch(id) is None:
            return None
        try:
            about = read_json(self.folder / f"{id}.json")
            return Kept(id, **about) if self.path(id).is_file() else None
        except (InputError, TypeError):
            return None

    def path(self, id: str) -> Path:
        """Where the content of a file is."""
        assert FILE_ID.fullmatch(id) is not None
        return self.folder / f"{id}.jsonl"

    def begin(self) -> Path:
        """A new empty file to write an upload into; what earlier ones left is removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".upload-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > ABANDONED:
                    left.unlink()
        kept = self.list()
        if len(kept) >= MOST_FILES or sum(one.bytes for one in kept) >= self.most:
            message = f"file: {MOST_FILES:,} files of {self.most:,} bytes together may be kept; delete some"
            raise ApiError(400, message, param="file", code="storage_full")
        fresh = self.folder / f".upload-{secrets.token_hex(12)}"
        fresh.touch()
        return fresh

    def keep(self, upload: Path, filename: str) -> Kept:
        """Check an upload line by line, and give it an id."""
        try:
            count = training_file.check(upload)
        except InputError as error:
            raise ApiError(400, f"file: {error}", param="file", code="invalid_file") from None
        id = f"file-{secrets.token_hex(12)}"
        kept = Kept(id, filename, upload.stat().st_size, int(time.time()), count)
        sync(upload)
        upload.rename(self.path(id))
        about = {name: value for name, value in vars(kept).items() if name != "id"}
        replace_file(self.folder / f"{id}.json", json.dumps(about, ensure_ascii=False))
        return kept

    def delete(self, id: str) -> None:
        """Remove a file; jobs have their own copies."""
        (self.folder / f"{id}.json").unlink(missing_ok=True)
        self.path(id).unlink(missing_ok=True)


def unknown_file(param: str = "file_id") -> ApiError:
    """One answer for every id that is none, whatever it looks like."""
    return ApiError(404, f"{param}: there is no such file", param=param, code="file_not_found")


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["files"])
    _add_listing(routes, state)
    _add_content(routes, state)
    return routes


def _add_listing(routes: APIRouter, state: State) -> None:
    form = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}}

    @routes.post("/v1/files", openapi_extra=form)
    async def upload(request: Request) -> dict[str, Any]:
        """Keep a file to fine-tune on: lines of JSON, checked one by one."""
        incoming = _Upload(request, most=state.settings.most_file)
        try:
            files = state.files_or_refuse()
            kept = await incoming.keep(files)
        finally:
            await incoming.drain()
        return kept.to_dict()

    @routes.get("/v1/files")
    async def files(
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> dict[str, Any]:
        """The files that are kept."""
        found = [one.to_dict() for one in state.files_or_refuse().list()]
        found = found if purpose in (None, PURPOSE) else []
        return page(found if order == "asc" else found[::-1], after=after, limit=limit)


def _add_content(routes: APIRouter, state: State) -> None:
    @routes.get("/v1/files/{file_id}")
    async def file(file_id: str) -> dict[str, Any]:
        """What is known of a file."""
        return _found(state, file_id).to_dict()

    @routes.get("/v1/files/{file_id}/content", response_class=Response)
    async def content(file_id: str) -> Response:
        """The content of a file, as it was uploaded."""
        kept = _found(state, file_id)
        try:
            opened = state.files_or_refuse().path(kept.id).open("rb")
        except OSError:  # it has just been deleted
            raise unknown_file() from None
        headers = {"content-disposition": f'attachment; filename="{kept.id}.jsonl"'}
        return StreamingResponse(_chunks(opened), media_type="application/octet-stream", headers=headers)

    @routes.delete("/v1/files/{file_id}")
    async def delete(file_id: str) -> dict[str, Any]:
        """Remove a file; jobs that learn from it are not affected."""
        kept = _found(state, file_id)
        state.files_or_refuse().delete(kept.id)
        return {"id": kept.id, "object": "file", "deleted": True}


def _found(state: State, id: str) -> Kept:
    kept = state.files_or_refuse().find(id)
    if kept is None:
        raise unknown_file()
    return kept


def _chunks(opened: BinaryIO) -> Iterator[bytes]:
    with opened as file:
        while chunk := file.read(CHUNK):
            yield chunk


class _Upload:
    """A request that brings a file."""

    def __init__(self, request: Request, *, most: int) -> None:
        self.most = most
        self.form = request.headers.get("content-type", "")
        self.body = request.stream()
        self.fields: dict[str, bytes] = {}
        self.filename: str | None = None
        self.size = 0

    async def keep(self, files: FileStore) -> Kept:
        """Write the file as it comes, check it, and keep it."""
        form = Multipart.of(self.form)
        fresh = await asyncio.to_thread(files.begin)
        try:
            with fresh.open("wb") as file:
                await self._read(form, file)
            purpose = self.fields.get("purpose", b"").decode("utf-8", "replace")
            if purpose != PURPOSE:
                raise invalid("purpose", f"must be {PURPOSE!r}, not {purpose[:40]!r}")
            if any(name.startswith("expires_after") for name in self.fields):
                raise invalid("expires_after", "is not offered; a file is kept until it is deleted")
            if self.filename is None:
                raise invalid("file", "is missing")
            return await asyncio.to_thread(files.keep, fresh, self.filename)
        except OSError as error:
            reason = error.strerror or "the disk failed"
            raise GlassError(f"the file could not be kept ({reason})") from None
        finally:
            fresh.unlink(missing_ok=True)

    async def _read(self, form: Multipart, file: BinaryIO) -> None:
        part = Part("", None)
        async for chunk in self._chunks():
            for piece in form.feed(chunk):
                if isinstance(piece, Part):
                    part = piece
                    self._begin(part)
                elif part.name == "file":
                    self._count(len(piece))
                    file.write(piece)
                else:
                    self._add(part.name, piece)
        if not form.done:
            raise ApiError(400, "the body ended before its last boundary", code="invalid_multipart")
        file.flush()
        os.fsync(file.fileno())

    def _begin(self, part: Part) -> None:
        if part.name in self.fields or (part.name == "file" and self.filename is not None):
            raise invalid(part.name[:40], "is given twice")
        if part.name == "file":
            if part.filename is None:
                raise invalid("file", "must be a file, with a file name")
            self.filename = plain_name(part.filename)
        else:
            self.fields[part.name] = b""

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > self.most:
            message = f"file: it is larger than {self.most:,} bytes"
            raise ApiError(413, message, param="file", code="file_too_large")

    def _add(self, name: str, piece: bytes) -> None:
        self.fields[name] += piece
        if len(self.fields[name]) > MOST_FIELD:
            raise invalid(name[:40], f"is longer than {MOST_FIELD:,} bytes")

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.body:
                yield chunk
        except ClientDisconnect:
            raise ClientGone from None

    async def drain(self) -> None:
        """Read and drop what is left: a client that still sends would not hear the answer."""
        async for _ in self._chunks():
            pass


def plain_name(given: str) -> str:
    """What a client calls a file, as a text for people: no folders, nothing that cannot be printed."""
    last = re.split(r"[/\\]", given)[-1]
    printable = "".join(c for c in last if c.isprintable())
    return printable[:LONGEST_NAME] or "unnamed"
