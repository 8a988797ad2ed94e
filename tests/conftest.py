"""What the tests share: small models with random weights, a home of their own, real vocabularies where they
are at hand.
"""

import gzip
import itertools
import os
import re
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers, two cores: children too
os.environ["HF_HUB_OFFLINE"] = "1"  # no test talks to the world; the hub's tests start a hub of their own

HOMES = itertools.count()
IN_BROWSER = re.compile(r"^(from browsing|import browsing|playwright =)|sync_playwright", re.MULTILINE)
from glassformer.hub.vocabulary import load_tokenizer  # noqa: E402  (after the switches above)
from glassformer.tokenizers import Tokenizer  # noqa: E402

DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a home of its own."""
    folder = (
        tmp_path_factory.getbasetemp() / f"home{next(HOMES)}"
    )  # made by the first test that writes into it
    monkeypatch.setenv("GLASSFORMER_HOME", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two workers on two cores: one thread each."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def gpt2_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GPT-2's own `encoder.json` and `vocab.bpe`."""
    source = DATA / "gpt2_bpe"
    if not source.is_dir():
        pytest.skip(
            f"GPT-2's vocabulary is not at {source}; set GLASSFORMER_DATA to the folder that holds gpt2_bpe"
        )
    folder = tmp_path_factory.mktemp("gpt2_bpe")
    for name in ("encoder.json", "vocab.bpe"):
        (folder / name).write_bytes(gzip.decompress((source / f"{name}.gz").read_bytes()))
    return folder


@pytest.fixture(scope="session")
def stories() -> Path:
    """The folder of the held-out stories."""
    if not (DATA / "stories").is_dir():
        pytest.skip(
            f"the held-out stories are not at {DATA / 'stories'}; set GLASSFORMER_DATA to the folder that holds stories"
        )
    return DATA / "stories"


@pytest.fixture(scope="session")
def gpt2(gpt2_vocabulary: Path) -> Tokenizer:
    """GPT-2's own tokenizer."""
    tokenizer = load_tokenizer(gpt2_vocabulary)
    assert tokenizer is not None
    return tokenizer


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With GLASSFORMER_BROWSER=required, a test in a browser that was skipped fails the run, whatever the reason."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("GLASSFORMER_BROWSER") != "required" or reporter is None:
        return
    files = {one for one in Path(__file__).parent.rglob("test_*.py") if IN_BROWSER.search(one.read_text())}
    names = {str(one.relative_to(session.config.rootpath)) for one in files}

    def of_browser(outcome: str) -> list[str]:
        found = [report.nodeid for report in reporter.stats.get(outcome, [])]
        return [nodeid for nodeid in found if nodeid.partition("::")[0] in names]

    skipped = of_browser("skipped")
    if skipped or not of_browser("passed"):
        reporter.write_line(f"tests in a browser were skipped: {', '.join(skipped) or 'all'}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
