"""The hub, for real: the client library against a hub that this test serves on loopback."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import Hub, serving_hub
from small import small_tokenizer

from glassformer.hub.known import KNOWN

GLASS = [sys.executable, "-m", "glassformer.cli"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[type[Hub], dict[str, str]]]:
    """A hub with one model in it, and the environment that points there."""
    with serving_hub(tmp_path) as found:
        yield found


def glass(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GLASS, *arguments], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_pull_use_list_and_remove(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """The life of a hub model on this machine; once it is here, the hub is not asked again."""
    served, environment = hub
    pulled = glass(environment, "pull", "owner/tiny")
    assert pulled.returncode == 0, pulled.stderr
    assert (Path(pulled.stdout.strip()) / "model.safetensors").is_file()
    asked = len(served.asked)
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    cut = glass(offline, "tokenize", "-m", "owner/tiny", "--ids", "Once upon")
    assert cut.returncode == 0, cut.stderr
    assert [int(id) for id in cut.stdout.split()] == small_tokenizer(300).encode("Once upon")
    assert len(served.asked) == asked
    assert glass(offline, "rm", "-y", "owner/tiny").returncode == 0
    assert "owner/tiny" not in glass(offline, "models").stdout


def test_a_flipped_bit_is_refused(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """Weights that do not hash to their name are removed, and the next pull is whole again."""
    served, environment = hub
    served.lies = True
    refused = glass(environment, "pull", "owner/tiny")
    assert refused.returncode == 2
    assert "sha256" in refused.stderr
    assert refused.stderr.count("glass:") == 1
    served.lies = False
    again = glass(environment, "pull", "owner/tiny")
    assert again.returncode == 0
    assert (Path(again.stdout.strip()) / "model.safetensors").read_bytes() == served.files[
        "model.safetensors"
    ]


def test_a_download_that_was_cut_off(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """What is missing of a revision is fetched by the next pull; offline it is not taken for the whole."""
    served, environment = hub
    folder = Path(glass(environment, "pull", "owner/tiny@v1.0").stdout.strip())
    assert any("v1.0" in path for path in served.asked)
    (folder / "model.safetensors").resolve().unlink()
    (folder / "model.safetensors").unlink()
    assert "not whole" in glass(environment | {"HF_HUB_OFFLINE": "1"}, "pull", "owner/tiny@v1.0").stderr
    assert glass(environment, "pull", "owner/tiny@v1.0").returncode == 0
    assert (folder / "model.safetensors").is_file()


def test_a_model_that_is_not_there(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """The hub's refusal, in one sentence."""
    _, environment = hub
    refused = glass(environment, "pull", "owner/other")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "owner/other" in refused.stderr
    assert "404" in refused.stderr


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "from http://127.0.0.1:9 (nothing answers there); check"),
        ({"HF_ENDPOINT": "http://hub.invalid"}, "from http://hub.invalid (no network); check the name"),
        ({"HF_HUB_OFFLINE": "1"}, "switched off"),
    ],
)
def test_without_a_network(hub: tuple[type[Hub], dict[str, str]], change: dict[str, str], word: str) -> None:
    """What was tried and what to do, in one sentence."""
    _, environment = hub
    refused = glass(environment | change, "pull", "owner/tiny")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert word in refused.stderr


def test_a_known_model_under_its_short_name(tmp_path: Path, hub: tuple[type[Hub], dict[str, str]]) -> None:
    """Other tools keep `gpt2` as `gpt2`: what is in the cache is found, listed and removed all the same."""
    _, environment = hub
    snapshot = tmp_path / "hf" / "hub" / "models--gpt2" / "snapshots" / KNOWN["gpt2"].revision
    shutil.copytree(tmp_path / "source", snapshot)
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    (snapshot / "model.safetensors").rename(
        tmp_path / "weights"
    )  # as an older client leaves it when it is cut off
    assert "not whole" in glass(offline, "pull", "gpt2").stderr
    (tmp_path / "weights").rename(snapshot / "model.safetensors")
    assert Path(glass(offline, "pull", "gpt2").stdout.strip()) == snapshot
    assert glass(offline, "rm", "-y", "gpt2").returncode == 0
    assert not snapshot.exists()


def test_the_table_of_known_models() -> None:
    """Full revisions and hashes, no two alike, sizes that fit the parameter counts in fp32."""
    assert {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"} <= set(KNOWN)
    for model in KNOWN.values():
        assert re.fullmatch(r"[0-9a-f]{40}", model.revision)
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert len({model.sha256 for model in KNOWN.values()}) == len(KNOWN)
    assert 4 * 124_439_808 < KNOWN["gpt2"].size < 4 * 124_439_808 + 60e6  # the masks are in the file
