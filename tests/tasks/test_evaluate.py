"""What `glass eval` reports is what an independent computation with `transformers` on the same weights gives."""

import gzip
import hashlib
import json
import math
from pathlib import Path

import pytest
import torch
from conftest import DATA
from small import hugging_face, save_hugging_face, small_tokenizer

import glassformer as gf
from glassformer.cli import run as glass
from glassformer.errors import InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import evaluate, was_trained_on, wikitext, windows

STORY = (
    "Once upon a time, there was a little girl named Lily. She liked to play outside in the park. One day, Lily ran away. "
    * 9
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[LanguageModel, torch.nn.Module]:
    """The same weights here and there, with a context of 40."""
    tokenizer = small_tokenizer(300)
    theirs = hugging_face(4, vocab_size=len(tokenizer))
    folder = tmp_path_factory.mktemp("pair")
    model = load_folder(save_hugging_face(theirs, folder / "theirs")).model
    save_folder(folder / "ours", model, tokenizer=tokenizer)
    return gf.load(str(folder / "ours"), engine="torch"), theirs


@torch.no_grad()
def their_nats(model: torch.nn.Module, ids: list[int], context: int, stride: int) -> tuple[float, int]:
    """The sum of −log p by the published loop: windows, labels of −100 for what was scored before; and its
    count.
    """
    nats, count, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + context, len(ids))
        row = torch.tensor([ids[begin:end]])
        labels = row.clone()
        labels[:, : -(end - before)] = -100
        scored = int((labels[:, 1:] != -100).sum())
        if scored:
            nats += model(row, labels=labels).loss.item() * scored
        count += scored
        before = end
        if end == len(ids):
            break
    return nats, count


@pytest.mark.parametrize("stride", [40, 20, 7])
def test_perplexity_is_that_of_transformers(
    pair: tuple[LanguageModel, torch.nn.Module], stride: int, tmp_path: Path
) -> None:
    """Without overlap and with a stride, to 1e-4; bits per byte follow from the same sum."""
    lm, theirs = pair
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    plain, strided = evaluate(lm, str(path), stride=stride)
    assert lm.tokenizer is not None
    ids = [lm.tokenizer.end or 0, *lm.tokenizer.encode(STORY)]
    for found, step in ((plain, 40), (strided, stride)):
        nats, count = their_nats(theirs, ids, 40, step)
        assert found.tokens == count
        assert found.perplexity == pytest.approx(math.exp(nats / count), rel=1e-4)
    nats, count = their_nats(theirs, ids, 40, stride)
    if stride < 40:
        assert strided.tokens == len(ids) - 1
        assert strided.bits_per_byte == pytest.approx(nats / math.log(2) / len(STORY), rel=1e-4)


def test_documents_are_measured_one_by_one(
    pair: tuple[LanguageModel, torch.nn.Module], tmp_path: Path
) -> None:
    """Each from its own beginning; with limits, only the first texts and the first characters of each."""
    lm, theirs = pair
    texts = [STORY[:50], "The end.", STORY[30:200], "And one more."]
    path = tmp_path / "stories.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert lm.tokenizer is not None
    for documents, characters in ((0, 0), (3, 0), (0, 20), (2, 9)):
        found = next(iter(evaluate(lm, str(path), documents=documents, characters=characters)))
        nats, count, size = 0.0, 0, 0
        for text in texts[: documents or None]:
            ids = [lm.tokenizer.end or 0, *lm.tokenizer.encode(text[: characters or None])]
            some, more = their_nats(theirs, ids, 40, 40)
            skipped = sum(len(lm.tokenizer.bytes_of(id)) for id in ids[40::40])
            nats, count, size = nats + some, count + more, size + len(text[: characters or None]) - skipped
        assert found.tokens == count
        assert found.loss == pytest.approx(nats / count, rel=1e-4)
        assert found.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-4)


def test_every_token_is_scored_once() -> None:
    """For any length, context and stride: in order, none twice, none left out but the first of a window
    without overlap.
    """
    for length in (1, 2, 9, 40, 41, 80, 97):
        for context, stride in ((40, 40), (40, 20), (40, 13), (2, 1), (5, 5)):
            scored = [
                at
                for begin, end, first in windows(length, context, stride=stride)
                for at in range(first, end)
            ]
            assert scored == sorted(set(scored))
            missing = set(range(length)) - set(scored)
            assert missing == ({0} if stride < context else set(range(0, length, context)))


def test_lambada_is_that_of_transformers(
    pair: tuple[LanguageModel, torch.nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word: its probability, and whether every token of it is the likeliest."""
    lm, theirs = pair
    assert lm.tokenizer is not None
    starts = ["Once upon a time, there was a", "She liked to play outside in", "One day, Lily", "ran " * 60]
    texts = [f"{start} {word}" for start in starts for word in ("girl", "the", "Lily")]
    with torch.no_grad():  # some that it gets right
        for start in starts[:2]:
            best = int(theirs(torch.tensor([lm.tokenizer.encode(start)])).logits[0, -1].argmax())
            piece = lm.tokenizer.decode([best])
            texts += (
                [start + piece]
                if piece.startswith(" ") and piece.strip() and " " not in piece.strip()
                else []
            )
    (tmp_path / "lambada").mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "lambada" / "lambada_test.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    (found,) = evaluate(lm, "lambada")
    nats, right = 0.0, 0
    for text in texts:
        start, _, word = text.rpartition(" ")
        target = lm.tokenizer.encode(f" {word}")
        row = (lm.tokenizer.encode(start) + target)[-40:]
        with torch.no_grad():
            logp = theirs(torch.tensor([row])).logits[0].double().log_softmax(-1)
        at = range(len(row) - len(target) - 1, len(row) - 1)
        nats -= sum(float(logp[place, row[place + 1]]) for place in at)
        right += all(int(logp[place].argmax()) == row[place + 1] for place in at)
    assert found.accuracy == right / len(texts)
    assert found.perplexity == pytest.approx(math.exp(nats / len(texts)), rel=1e-4)


def test_wikitext_is_read_as_published(gpt2: gf.Tokenizer) -> None:
    """With GPT-2's vocabulary the raw test set has the 287,644 tokens that the published protocol has."""
    path = DATA / "wikitext2" / "wiki.test.raw.gz"
    if not path.is_file():
        pytest.skip(f"WikiText-2 is not at {path}; set GLASSFORMER_DATA to the folder that holds wikitext2")
    assert len(gpt2.encode(wikitext(path))) == 287_644


@pytest.mark.parametrize("name", ["wikitext2", "lambada"])
def test_a_set_that_is_not_here(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence names the place that was searched and the remedy."""
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    with pytest.raises(InputError, match="GLASSFORMER_DATA is not set"):
        list(evaluate(gf.load("storyteller"), name))
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    with pytest.raises(InputError, match="does not exist"):
        list(evaluate(gf.load("storyteller"), name))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures with their protocol, as lines or as data; bad input in one sentence."""
    path = tmp_path / "story.txt"
    path.write_text(STORY[:300])
    assert glass(["eval", "storyteller", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "perplexity" in printed.out
    assert "moving by 512; scored once: all but the first token of each window" in printed.out
    assert "windows of 512 tokens, moving by 256; scored once: each token after the first" in printed.out
    assert glass(["eval", "storyteller", str(path), "--json", "--stride", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"].split(", ")[-1] for one in found] == ["without overlap", "stride 100"]
    assert found[0]["bits_per_byte"] == pytest.approx(found[1]["bits_per_byte"])  # all of it fits one window
    assert glass(["eval", str(path), str(tmp_path)]) == 2
    assert f"{path} is a text; the model comes first" in capsys.readouterr().err
    for wrong, word in ((["--stride", "513"], "stride"), ([], "no such file")):
        target = str(path) if wrong else str(tmp_path / "nothing.txt")
        assert glass(["eval", "storyteller", target, *wrong]) == 2
        assert word in capsys.readouterr().err


def test_a_text_that_the_model_was_trained_on(tmp_path: Path) -> None:
    """A card lists its texts by their hashes: the same file is known under any name, another one is not."""
    text, folder = tmp_path / "renamed.txt", tmp_path / "model"
    text.write_text("A cat.")
    folder.mkdir()
    assert not was_trained_on(str(folder), str(text))
    digits = hashlib.sha256(b"A cat.").hexdigest()[:16]
    (folder / "card.md").write_text(f"- `cats.txt`: 1 document; sha256 0123456789abcdef, {digits}\n")
    assert was_trained_on(str(folder), str(text))
    text.write_text("A dog.")
    assert not was_trained_on(str(folder), str(text))
