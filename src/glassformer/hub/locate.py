"""Names to folders: shipped models, folders, models kept at home, the hub and its cache. No torch here."""

import contextlib
import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from glassformer import machine
from glassformer.errors import CheckpointError, InputError, NetworkError
from glassformer.files import MEGABYTE, read_json
from glassformer.hub.families import model_types
from glassformer.hub.known import KNOWN, Known, by_repository

SHIPPED = Path(__file__).parent.parent / "pretrained"
PATTERNS = ["*.json", "*.txt", "*.bpe", "*.spm", "model*.safetensors", "adapter_model.safetensors"]
CONFIGS = ("config.json", "adapter_config.json")
PATIENCE = 20.0  # seconds for the hub's first answer
PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
Progress = Callable[[int, int], object]  # bytes that are there, and those that are needed
NAME = re.compile(rf"(?P<id>{PART}(?:/{PART})?)(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{{0,200}}))?")


@dataclass(frozen=True)
class Kept:
    """A model that is on this machine."""

    name: str
    where: str  # "shipped", "home" or "hub cache"
    folder: Path
    size: int
    revision: str = ""


def locate(name: str, *, revision: str | None = None, offline: bool = False) -> Path:
    """The folder of a model: a shipped name, a folder, a name from `glass models`, or a hub id."""
    if not name:
        raise InputError("the model's name is empty")
    path = as_path(name)
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt") and path.is_file():
        raise CheckpointError(f"{path} is a pickle and never loaded; run: glass convert {path}")
    refuse_files_of_others(path)
    if _looks_like_path(name) or (path.is_dir() and not shipped(name)):
        if not path.is_dir():
            raise InputError(f"there is no folder {name[:200]!r}")
        return (
            path / "model" if (path / "model").is_dir() and not _holds_model(path) else path
        )  # what a training made
    id, revision = split_name(name, revision)
    for folder in (shipped(id), home_folder(id)):
        if folder is not None and folder.is_dir():
            return folder
    return download(id, revision, offline=offline)


def refuse_files_of_others(path: Path) -> None:
    """Refuse files that are weights without their model, or in a format that is not read."""
    if path.suffix == ".safetensors" and path.is_file():
        raise InputError(f"{path} is a file; give the folder in which it lies with its config.json")
    if path.suffix == ".gguf" and path.is_file():
        raise InputError(f"{path} is a GGUF file, which is not read; give a folder with safetensors")


def as_path(name: str) -> Path:
    """A name as the path that it may be."""
    try:
        path = Path(name).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # too long, or not ours to see; no such user; a NUL or half a character
        raise InputError(f"{name[:100]!r} is neither a folder nor a model's name") from None
    return path


def split_name(name: str, revision: str | None = None) -> tuple[str, str | None]:
    """A hub id and its revision, from `owner/name@revision`; refuses whatever cannot be one."""
    match = NAME.fullmatch(name)
    sound = revision is None or (NAME.fullmatch(f"x@{revision}") is not None and ".." not in revision)
    if match is None or not sound or ".." in name or "--" in name or match["id"].endswith((".git", "-")):
        name = name if sound else f"{name}@{revision}"
        raise InputError(
            f"{name[:100]!r} is neither a folder nor a model's name"
            " (like storyteller, gpt2 or owner/name@revision)"
        )
    return match["id"], revision or match["revision"]


def download(
    id: str, revision: str | None, *, offline: bool = False, progress: Progress | None = None
) -> Path:
    """The folder of a hub model in the hub's cache; downloads what is missing, checks what it downloads.

    `progress` is called with the bytes that are there and those that are needed; without it, bars are shown.
    """
    try:
        return _download(id, revision, offline=offline, progress=progress)
    except NetworkError:
        meant = _similar(id)
        if meant is None:
            raise
        raise InputError(f"there is no model {id!r} on this machine; did you mean {meant}?") from None


def _missing(name: str) -> str:
    """That there is no such model to remove, and which one was probably meant."""
    close = difflib.get_close_matches(name, [one.name for one in kept() if one.where != "shipped"], n=1)
    return f"there is no model {name} on this machine" + (f"; did you mean {close[0]}?" if close else "")


def _similar(id: str) -> str | None:
    """The model or folder that was probably meant by a name that leads nowhere; None for a published one."""
    if id in KNOWN or by_repository(id) is not None:
        return None
    folder = Path(id).parent
    if "/" in id:
        names = [str(one) for one in folder.iterdir()] if folder.is_dir() else []
    else:
        names = [one.name for one in _folders(SHIPPED) + _folders(machine.home() / "models")] + list(KNOWN)
    close = difflib.get_close_matches(id, names, n=1, cutoff=0.75)
    return close[0] if close else None


def _download(id: str, revision: str | None, *, offline: bool, progress: Progress | None) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, revision, known = _pinned(id, revision)
    offline = offline or constants.HF_HUB_OFFLINE
    for place in dict.fromkeys((repository, id)):  # others may have kept a known model under its short name
        with contextlib.suppress(LocalEntryNotFoundError, OSError, RuntimeError):  # or there is no such home
            folder = Path(
                snapshot_download(place, revision=revision, allow_patterns=PATTERNS, local_files_only=True)
            )
            if is_whole(folder):
                return folder
    if offline:
        raise NetworkError(
            f"{repository} is not in the cache ({constants.HF_HUB_CACHE}), or not whole,"
            " and downloads are switched off;"
            f" run `glass pull {id}` with a network, or use a folder"
        )
    try:
        # One question, so that no network is known at once.
        sized = progress is not None
        about = HfApi().model_info(repository, revision=revision, timeout=PATIENCE, files_metadata=sized)
        shown = {} if progress is None else {"tqdm_class": _reporting(progress, _needed(about))}
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=PATTERNS, **shown))
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no answer")
        raise NetworkError(
            f"{repository}@{revision or 'main'} was asked for at {constants.ENDPOINT} and refused ({status});"
            " check the name and the revision, or set HF_TOKEN for a private model"
        ) from None
    except Exception as error:  # transport errors share no base class across versions of the hub's client
        raise NetworkError(
            f"{id} is not a folder here, nor a model of this machine (see `glass models`), and could not be"
            f" downloaded from {constants.ENDPOINT} ({_reason(error)}); check the name and the network"
        ) from None
    verify(folder, known)
    if not is_whole(folder):
        raise CheckpointError(
            f"{repository} has no config.json with safetensors weights, the only ones that are loaded"
        )
    return folder


def _needed(about: Any) -> int:
    """The bytes of the files that are fetched of a repository."""
    files = [one for one in about.siblings or () if any(fnmatch(one.rfilename, like) for like in PATTERNS)]
    return sum(one.size or 0 for one in files)


def _reporting(progress: Progress, needed: int) -> Any:
    """A progress bar of the hub's client that is not shown, and reports bytes instead.

    Its own total grows with every file that is begun, and would be reached again and again.
    """
    from huggingface_hub import utils

    bar: Any = utils.tqdm  # type: ignore[attr-defined]

    class Reporting(bar):  # type: ignore[misc]
        def __init__(self, *items: Any, **how: Any) -> None:
            self.is_bytes, self.done = how.get("unit") == "B", 0
            super().__init__(*items, **how | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            if self.is_bytes:
                progress(self.done, max(needed, int(self.total or 0)))

    return Reporting


def verify(folder: Path, known: Known | None) -> None:
    """Check the weights' hash: by the table for a known model, else by their name in the cache."""
    for path in sorted(folder.glob("*.safetensors")):
        expected = (
            known.sha256 if known is not None and path.name == "model.safetensors" else path.resolve().name
        )
        if not re.fullmatch(r"[0-9a-f]{64}", expected):
            continue
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != expected:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise CheckpointError(
                f"{path}: its sha256 is {actual}, should be {expected}; the file was removed, pull it again"
            )


def kept() -> list[Kept]:
    """Every model on this machine that could be loaded by name."""
    found = [Kept(path.name, "shipped", path, _size(path)) for path in _folders(SHIPPED)]
    found += [
        Kept(path.name, "home", path, _size(path))
        for path in _folders(machine.home() / "models")
        if home_folder(path.name)
    ]
    return found + _cached()


class Removal(NamedTuple):
    """A model that can be deleted: the bytes that this frees, and what deletes it."""

    size: int
    delete: Callable[[], object]
    with_quantized: bool = False  # whether its quantized copies go too


def plan_removal(name: str) -> Removal:
    """How to delete a model that is kept at home or in the hub's cache; nothing is deleted yet."""
    if _looks_like_path(name):
        raise InputError(f"{name[:200]!r} is a path; rm takes a name from `glass models`")
    id, revision = split_name(name)
    if "/" in name and Path(name).is_dir():
        raise InputError(f"{name} is a folder, not a name from `glass models`; delete the folder yourself")
    if shipped(id) is not None:
        raise InputError(f"{id} ships with Glassformer and cannot be removed")
    folder = home_folder(id)
    if folder is not None and folder.is_dir():
        if folder.is_symlink():
            raise InputError(f"{folder} is a link to {folder.resolve()}; remove that")
        return Removal(_size(folder), partial(shutil.rmtree, folder))
    repository, _, _ = _pinned(id, None)
    cache = _scan()
    if cache is None:
        raise InputError(_missing(id))
    # By hash alone another repository's copy of the same revision could be the one that goes.
    mine = frozenset(
        repo for repo in cache.repos if repo.repo_id in (repository, id) and repo.repo_type == "model"
    )
    commits = [
        commit.commit_hash
        for repo in mine
        for commit in repo.revisions
        if revision is None or commit.commit_hash.startswith(revision) or revision in commit.refs
    ]
    if not commits:
        raise InputError(_missing(name))
    plan = replace(cache, repos=mine).delete_revisions(*commits)
    return Removal(int(plan.expected_freed_size), plan.execute)


def home_folder(name: str) -> Path | None:
    """The folder that a name has, or would have, among the models kept at home."""
    models = machine.home() / "models"
    folder = models / name
    try:
        inside = folder.resolve().parent == models.resolve()
    except (OSError, RuntimeError, ValueError):  # a link to itself; a name that is no path
        return None
    return folder if inside and "/" not in name else None


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or os.sep * 2 in name or name.endswith("/") or "\\" in name


def shipped(name: str) -> Path | None:
    """The folder of a model that ships inside the package."""
    return next((folder for folder in _folders(SHIPPED) if folder.name == name), None)


def _folders(parent: Path) -> list[Path]:
    found = (path for path in parent.glob("*") if path.is_dir() and not path.name.startswith("."))
    return sorted(path for path in found if _holds_model(path))


def _holds_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in CONFIGS)


def _pinned(id: str, revision: str | None) -> tuple[str, str | None, Known | None]:
    """Repository and revision of an id; a known one is pinned unless another revision was asked for."""
    known = KNOWN.get(id) or by_repository(id)
    if known is None:
        return id, revision, None
    return known.repository, revision or known.revision, known if revision in (None, known.revision) else None


def is_whole(folder: Path) -> bool:
    """Whether configuration and weights are there: a download may have been cut off."""
    if (folder / "adapter_config.json").is_file() and (folder / "adapter_model.safetensors").is_file():
        return True
    shards = {"model.safetensors"}
    if not (folder / "model.safetensors").is_file() and (folder / "model.safetensors.index.json").is_file():
        names = read_json(folder / "model.safetensors.index.json", 16 * MEGABYTE).get("weight_map")
        shards = {str(name) for name in names.values()} if isinstance(names, dict) else shards
    return (folder / "config.json").is_file() and all(
        (folder / Path(shard).name).is_file() for shard in shards
    )


def _scan() -> Any:
    """What the hub's cache holds; None where there is no cache."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return scan_cache_dir()
    except CacheNotFound:
        return None
    except (OSError, RuntimeError, ValueError) as error:  # ~ of a user who does not exist, a file, no access
        raise InputError(f"the hub's cache cannot be read ({error}); check HF_HOME") from None


def _cached() -> list[Kept]:
    cache = _scan()
    if cache is None:
        return []
    found = []
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id):
        for commit in sorted(repo.revisions, key=lambda commit: commit.commit_hash):
            config = commit.snapshot_path / "config.json"
            try:
                mine = repo.repo_type == "model" and read_json(config).get("model_type") in model_types()
            except CheckpointError:
                continue
            if mine:
                name = next(
                    (name for name, known in KNOWN.items() if known.repository == repo.repo_id), repo.repo_id
                )
                found.append(
                    Kept(
                        name, "hub cache", commit.snapshot_path, commit.size_on_disk, commit.commit_hash[:12]
                    )
                )
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _reason(error: BaseException) -> str:
    """The first cause of an error, in a few words."""
    import errno
    import socket

    while (error.__cause__ or error.__context__) is not None:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.ENETUNREACH:
        return "no network"
    if isinstance(error, ConnectionRefusedError):
        return "nothing answers there"
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return "no answer in time"
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else 'no answer'}"
