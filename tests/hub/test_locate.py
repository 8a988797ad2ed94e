"""Hostile names of models: none leads out of the models kept at home and the hub's cache, to read or to
delete.
"""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from bad_files import copy, tiny_folder
from huggingface_hub.utils import _cache_manager

from glassformer.cli import run
from glassformer.errors import GlassError, InputError
from glassformer.hub.locate import home_folder, kept, locate, plan_removal, split_name
from glassformer.tasks.library import convert, describe, pull

COMMIT, OTHER = "a" * 40, "b" * 40
UPS = [
    "../", "..\\", "../../", "....//", "..//", "..;/", "./../", "/../", "%2e%2e%2f", "%2e%2e/", "..%2f", "%2e%2e%5c",
    "%252e%252e%252f", "%c0%ae%c0%ae%c0%af", "..%c0%af", "．．／", "‥/", "..∕", "..\0/", "mine/../../", "mine/../",
    "owner/../", "owner/name/../../", "mine@../", "owner/name@../", "owner/name@main/../../",
]  # fmt: skip
TARGETS = ["models-secret", "secret", "outside/model", "models/mine", "etc/passwd", ""]
SINGLE = [
    "", ".", "..", "...", "/", "//", "///", "~", "~/", "~/secret", "~root", "~root/x", "~nobody-of-this-name",
    "~nobody-of-this-name/x", "~+", "~/../secret", "$HOME/secret", "${HOME}", "%HOME%", "`id`", "$(id)", "mine;id", "mine|id",
    "mine&id", "mine\nid", "mine id", "/etc", "/etc/passwd", "/proc/self/environ", "/dev/zero", "//etc/passwd",
    "file:///etc/passwd", "http://127.0.0.1/x", "git@host:x/y", "C:", "C:\\", "C:x", "C:/Windows", "C:\\Windows\\x",
    "\\\\server\\share", "//server/share", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "CON:", "mine\0", "\0", "\0mine",
    "mine\0/../secret", "owner/na\0me", "./mine\0", "mine@main\0", "mine\r", "mine\n", "\nmine", "mine\t", " mine", "mine ",
    "mine/", "/mine", "mine//x", "owner//name", "owner/name/", "owner/name/x", "a/b/c/d", "owner\\name", "-mine", "-rf", "--",
    "_x", "mine.", ".mine", "mine..", "mi..ne", "mi--ne", "owner--name", "models--owner--name", "owner/.name", ".owner/name",
    "owner/..", "../name", "mine@", "@main", "mine@@x", "mine@x@y", "owner/name@-x", "owner/name@.x", "owner/name@..",
    "owner/name@a..b", "owner/name@/etc", "mine#x", "mine?x", "mine*", "*", "?", "[a-z]*", "{mine}", "mine:x", "mine%00",
    "mine%2f", "mi\u200bne", "mine\u202e", "\ufeffmine", "ｍｉｎｅ", "mіne", "mｉne", "ⅿine", "ownеr/name", "owner／name",
    "owner⁄name", "owner∕name", "gрt2", "gpt２", "gpt2\u0301", "ѕtoryteller", "\x1b[2Jmine", "\x7f", "\ud800", "mine\udcff",
    "./\ud800", "./\x1b[2J", "é", "日本", "🐈", "a" * 97, "a" * 300, "a" * 5000, "./" + "a" * 300, "/" + "a" * 300,
    "/" + "a/" * 3000, "a/" * 3000, "a/" + "b" * 97, "mine@" + "x" * 300, "." * 300, "../" * 1500,
]  # fmt: skip
HOSTILE = list(dict.fromkeys([*SINGLE, *(up + target for up, target in itertools.product(UPS, TARGETS))]))


def remove(name: str) -> int:
    """Delete a model; the bytes that this freed."""
    plan = plan_removal(name)
    plan.delete()
    return plan.size


touched: list[str] | None = None  # what is opened, listed or deleted while it is a list


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if touched is not None and event in (
        "open",
        "os.listdir",
        "os.scandir",
        "os.remove",
        "os.rmdir",
        "os.rename",
        "shutil.rmtree",
    ):
        touched.extend(
            os.fsdecode(path) for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)
        )


sys.addaudithook(watch)


class World:
    """A home with a model, a cache with a model, and secrets all around them."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root, self.home, self.models = root, root / "home", root / "home" / "models"
        self.cache, self.work, self.user, self.outside = (
            root / "cache",
            root / "work",
            root / "user",
            root / "outside",
        )
        self.secrets = [
            self.home / "models-secret",
            self.home / "secret",
            self.user / "secret",
            root / "secret",
            self.outside / "model",
        ]
        for folder in (self.models / "mine", *self.secrets):
            copy(model, folder)
        self.work.mkdir()
        (self.outside / "ref").write_text("../../../outside/model")
        for repo, commits in {
            "models--owner--name": (COMMIT, OTHER),
            "models--other--name": (COMMIT,),
            "datasets--owner--name": (COMMIT,),
            **{f"models--copy{i}--name": (COMMIT,) for i in range(6)},
        }.items():
            for commit in commits:
                copy(model, self.cache / repo / "snapshots" / commit)
            (self.cache / repo / "refs").mkdir()
            (self.cache / repo / "refs" / "main").write_text(COMMIT)

    def files(self) -> set[str]:
        """Every file of this world; looking for them does not count as touching."""
        global touched
        before, touched = touched, None
        found = {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_symlink() or path.is_file()
        }
        touched = before
        return found

    def repos(self) -> set[str]:
        return {path.name for path in self.cache.iterdir() if path.name[0] != "."}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def world(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    global touched
    world = World(tmp_path, model)
    monkeypatch.setenv("GLASSFORMER_HOME", str(world.home))
    monkeypatch.setenv("HOME", str(world.user))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(world.cache))
    monkeypatch.setattr(_cache_manager, "HF_HUB_CACHE", str(world.cache))
    monkeypatch.chdir(world.work)
    touched = []
    yield world
    touched = None


def secrets_touched(world: World) -> list[str]:
    """What was opened, listed or deleted in the secret folders."""
    paths = [os.path.realpath(path) for path in touched or [] if "\0" not in path]
    return [
        path
        for path in paths
        if any(Path(path).is_relative_to(secret) for secret in (*world.secrets, world.outside))
    ]


def outcome(function: Any, *arguments: Any, **more: Any) -> Any:
    """What a call gives, or the error that it is refused with, which must be ours and readable."""
    try:
        return function(*arguments, **more)
    except GlassError as error:
        readable = str(error).isprintable() and len(str(error)) < 1000
        return error if readable else f"not readable: {str(error)[:1000]!a}"
    except Exception as error:
        return f"not ours: {error!r}"


def test_there_are_enough_names() -> None:
    """Two hundred of them."""
    assert len(HOSTILE) >= 200


def test_no_hostile_name_is_a_name() -> None:
    """All of them are refused where a name is asked for; sound ones are not."""
    for revision in (None, "main"):
        results = {name: outcome(split_name, name, revision) for name in HOSTILE}
        assert {name: result for name, result in results.items() if not isinstance(result, InputError)} == {}
    assert split_name("owner/my_model-2.0@refs/pr/1") == ("owner/my_model-2.0", "refs/pr/1")
    assert split_name("mine") == ("mine", None)


def test_no_hostile_name_has_a_folder_outside(world: World) -> None:
    """The folder of a name at home lies in the models' folder and is not that folder itself, or there is
    none.
    """
    results = {name: outcome(home_folder, name) for name in [*HOSTILE, "mine"]}
    strange = {name: found for name, found in results.items() if not isinstance(found, Path | None)}
    assert strange == {}
    escaped = [
        name
        for name, found in results.items()
        if found is not None and found.resolve().parent != world.models.resolve()
    ]
    assert escaped == []
    assert results["mine"] == world.models / "mine"


def test_no_hostile_name_leads_elsewhere(world: World) -> None:
    """A name is refused, or it is the path of that very folder; no name leads to another folder."""
    results = {name: outcome(locate, name, offline=True) for name in HOSTILE}
    strange = {name: found for name, found in results.items() if not isinstance(found, Path | GlassError)}
    assert strange == {}
    paths = {name: found for name, found in results.items() if isinstance(found, Path)}
    assert {
        name for name, found in paths.items() if not os.path.samefile(found, os.path.expanduser(name))
    } == set()
    assert {name for name in paths if not name.startswith((".", "/", "~"))} == set()
    assert secrets_touched(world) == []
    assert locate("mine") == world.models / "mine"
    assert locate("owner/name") == world.cache / "models--owner--name" / "snapshots" / COMMIT


@pytest.mark.parametrize("function", [remove, lambda name: pull(name, offline=True)], ids=["remove", "pull"])
def test_no_hostile_name_is_removed_or_pulled(world: World, function: Any) -> None:
    """All of them are refused, and no file is gone or was looked at."""
    before = world.files()
    strange = {
        name: result for name in HOSTILE if not isinstance(result := outcome(function, name), InputError)
    }
    assert strange == {}
    assert world.files() == before
    assert secrets_touched(world) == []


def test_no_hostile_name_is_removed_by_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`glass rm` refuses in one line."""
    before = world.files()
    for name in HOSTILE:
        assert outcome(run, ["rm", "--yes", "--", name]) == 2, ascii(name[:50])
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("glass: ")
        assert printed.err.count("\n") == 1
    assert world.files() == before
    assert secrets_touched(world) == []


def test_no_hostile_name_is_shown_by_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`glass show` shows a folder that was asked for by its path, and refuses every other name."""
    for name in HOSTILE:
        code = outcome(run, ["show", "--offline", "--", name])
        printed = capsys.readouterr()
        if (
            name.startswith((".", "/", "~"))
            and "\0" not in name
            and os.path.isfile(os.path.expanduser(f"{name}/config.json"))
        ):
            assert code == 0
        else:
            assert code in (1, 2), (ascii(name[:50]), code)
            assert printed.out == ""
            assert printed.err.count("\n") == 1
    assert run(["show", "mine"]) == 0


def test_nul_does_not_lead_to_the_current_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of a model, a name with a NUL in it is still no name of that model."""
    monkeypatch.chdir(world.outside / "model")
    assert locate(".") == Path()
    for name in ("mine\0", "\0", "./\0", "owner/name\0"):
        assert isinstance(outcome(locate, name, offline=True), InputError)
        assert isinstance(outcome(describe, name, offline=True), InputError)


@pytest.mark.parametrize(
    "revision",
    [
        "../../../outside/ref",
        "..",
        "../../..",
        "main/../../../../outside/ref",
        "/etc",
        "a\0b",
        "a" * 5000,
        "\ud800",
    ],
)
def test_no_hostile_revision_leads_elsewhere(world: World, revision: str) -> None:
    """A revision is held to the same rules, also when it does not come with the name."""
    assert locate("owner/name", revision="main").is_relative_to(world.cache)
    assert isinstance(outcome(locate, "owner/name", revision=revision, offline=True), InputError)
    assert isinstance(outcome(pull, "owner/name", revision=revision, offline=True), InputError)
    assert secrets_touched(world) == []


@pytest.mark.parametrize("name", ["a-", "a/b-", "-a/b", "a.git", "a/b.git", "x" * 96 + "/" + "y" * 96])
def test_names_that_only_the_hub_refuses_are_refused_by_us(world: World, name: str) -> None:
    """What the hub's library would not take as a name is refused in our words."""
    assert isinstance(outcome(locate, name, offline=True), GlassError)


# ---- links


@pytest.mark.parametrize("target", ["models-secret", "secret", "../outside/model", "..", ".", "models", "/"])
def test_link_out_of_the_models_is_no_model(world: World, target: str) -> None:
    """A link among the models that leads out of their folder, also to one whose name only begins alike, is
    not followed.
    """
    link = world.models / "link"
    link.symlink_to(target if target == "/" else world.home / target)
    before = world.files()
    assert home_folder("link") is None
    for function in (locate, remove, describe):
        assert isinstance(outcome(function, "link"), GlassError)
    assert world.files() == before
    assert [one.name for one in kept() if one.where == "home"] == ["mine"]
    assert link.is_symlink()


def test_link_to_itself_is_no_model(world: World) -> None:
    """A link that leads nowhere but to itself is refused like any other name."""
    (world.models / "loop").symlink_to("loop")
    assert isinstance(outcome(locate, "loop"), GlassError)
    assert isinstance(outcome(remove, "loop"), GlassError)


def test_link_to_another_model_does_not_remove_it(world: World) -> None:
    """Removing a second name of a model never removes the model."""
    (world.models / "alias").symlink_to("mine")
    result = outcome(remove, "alias")
    assert isinstance(result, GlassError) or not (world.models / "alias").is_symlink()
    assert isinstance(result, GlassError | int)
    assert (world.models / "mine" / "config.json").is_file()


def test_links_in_a_model_are_not_followed_when_it_is_removed(world: World) -> None:
    """Removing a model removes the links in it, not what they lead to."""
    (world.models / "mine" / "folder").symlink_to(world.outside)
    (world.models / "mine" / "file").symlink_to(world.outside / "model" / "config.json")
    mine = {name for name in world.files() if name.startswith("home/models/mine/")}
    before = world.files()
    assert remove("mine") > 0
    assert world.files() == before - mine
    assert not (world.models / "mine").exists()


def test_models_may_be_kept_behind_a_link(world: World) -> None:
    """Where the models' folder itself is a link, for another disk, its models are models."""
    world.models.rename(world.root / "disk")
    world.models.symlink_to(world.root / "disk")
    assert locate("mine") == world.models / "mine"
    assert remove("mine") > 0
    assert not (world.root / "disk" / "mine").exists()


# ---- the hub's cache


def test_only_the_named_model_leaves_the_cache(world: World) -> None:
    """Removing a model from the cache leaves copies of it under other names, and data sets of its name, where
    they are.
    """
    before = world.repos()
    assert remove("owner/name") > 0
    assert world.repos() == before - {"models--owner--name"}


def test_only_the_named_revision_leaves_the_cache(world: World) -> None:
    """Removing one revision leaves the other, and that of other models."""
    before = set(world.cache.glob("*/snapshots/*"))
    assert remove(f"owner/name@{COMMIT[:12]}") > 0
    gone = before - set(world.cache.glob("*/snapshots/*"))
    assert gone == {world.cache / "models--owner--name" / "snapshots" / COMMIT}


@pytest.mark.parametrize(
    "name", ["owner/nam", "owner/name2", "name", "owner", "Owner/name", "owner/name@c", "owner/name@mai"]
)
def test_similar_names_are_not_removed(world: World, name: str) -> None:
    """A name that is only similar to one in the cache removes nothing."""
    before = world.files()
    assert isinstance(outcome(remove, name), InputError)
    assert world.files() == before


# ---- where a converted model goes


def test_no_hostile_name_is_the_place_of_a_new_model(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new model is kept at home under a sound name, or goes to the very path that was given."""
    placed: list[Path] = []
    monkeypatch.setattr(
        "glassformer.hub.convert.convert", lambda source, folder, **how: placed.append(folder)
    )
    for name in HOSTILE:
        placed.clear()
        result = outcome(convert, world.work / "x.pt", name)
        assert isinstance(result, Path | GlassError), (ascii(name[:50]), result)
        for folder in placed:
            path = "/" in name or name.startswith((".", "~"))
            assert path or name == "", ascii(name[:50])  # for no name at all, that of the file
            assert not path or folder == Path(os.path.expanduser(name))
    assert convert(world.work / "x.pt", "new") == world.models / "new"


@pytest.mark.parametrize("place", ["~no-such-user/hub", "a" * 5000])
def test_a_cache_that_cannot_be(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """HF_HOME may hold anything: the sentence names it."""
    for module in (_cache_manager, huggingface_hub.constants):
        monkeypatch.setattr(module, "HF_HUB_CACHE", place, raising=False)
    for use in (kept, lambda: remove("gpt2")):
        with pytest.raises(InputError, match=r"^the hub's cache cannot be read \(.*\); check HF_HOME$"):
            use()
    with pytest.raises(GlassError, match=r"^openai-community/gpt2 is not in the cache"):
        locate("gpt2", offline=True)
