"""Marian's vocabularies: pieces and ids as `transformers` has them, read from real files and written again."""

import io
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from marian import hugging_face
from small import TEXT

import glassformer as gf
from glassformer.errors import CheckpointError, InputError
from glassformer.hub.vocabulary import load_tokenizer, tokenizer_files
from glassformer.tasks.translate import Translator
from glassformer.tokenizers.sentence_pieces import SentencePieces

ROOT = Path(__file__).parents[2]
FRENCH = "Il était une fois une petite fille nommée Lily. Elle aimait jouer dehors dans le parc.\n" * 20
CODES = [">>fra<<", ">>deu<<"]
TEXTS = [
    "Once upon a time",
    "  two  blanks ",
    "naïve café №5 😀",
    "",
    "▁",
    "</s> <pad> <unk>",
    "a\nb\tc",
    "Lily" * 50,
]


def learned(text: str, size: int) -> bytes:
    """A SentencePiece model of a text, as Marian's are."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.split("\n")), model_writer=made, vocab_size=size, minloglevel=2
    )
    return made.getvalue()


@pytest.fixture(scope="module")
def models() -> tuple[bytes, bytes]:
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    return tuple(learned(page.read_text() + FRENCH, 250) for page in pages)  # type: ignore[return-value]


def pieces(model: bytes) -> list[str]:
    reader = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [reader.id_to_piece(id) for id in range(3, len(reader))]


@pytest.fixture(scope="module")
def folder(models: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary in files: pieces of both languages in one list, which lacks some of them."""
    made = tmp_path_factory.mktemp("marian")
    both = list(dict.fromkeys([*pieces(models[0])[:-30], *pieces(models[1])]))
    vocab = {piece: id for id, piece in enumerate(["</s>", "<unk>", *both, *CODES, "<pad>"])}
    (made / "vocab.json").write_text(json.dumps(vocab))
    (made / "source.spm").write_bytes(models[0])
    (made / "target.spm").write_bytes(models[1])
    return made


def theirs(folder: Path, **how: Any) -> Any:
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a library that it does not use
        return MarianTokenizer.from_pretrained(folder, **how)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> SentencePieces:
    found = load_tokenizer(folder)
    assert isinstance(found, SentencePieces)
    return found


def test_ids_are_those_of_transformers(folder: Path, tokenizer: SentencePieces) -> None:
    """Of sources and of targets, also with pieces that the list lacks, and behind a language's code."""
    other = theirs(folder)
    source = tokenizer.source
    assert source is not None
    rng = random.Random(0)
    letters = sorted(set(TEXT + FRENCH)) + list("😀ß\u3000>")
    texts = TEXTS + ["".join(rng.choices(letters, k=rng.randrange(30))) for _ in range(300)]
    plain = [text for text in texts if "<" not in text]  # theirs reads special tokens in a text
    assert [source.encode(text) for text in plain] == [other(text).input_ids[:-1] for text in plain]
    assert [tokenizer.encode(text) for text in plain] == [
        other(text_target=text).input_ids[:-1] for text in plain
    ]
    assert source.encode(">>fra<< Once") == other(">>fra<< Once").input_ids[:-1]
    assert source.encode(">>eng<< Once")[0] == other(">>eng<< Once").input_ids[0] == source.special["<unk>"]
    assert any(source.special["<unk>"] in source.encode(text) for text in plain)


def test_texts_are_those_of_transformers(folder: Path, tokenizer: SentencePieces) -> None:
    """Of any ids without special tokens; joined, the bytes of tokens are the text."""
    other = theirs(folder)
    rng = random.Random(1)
    ordinary = [id for id in range(len(tokenizer)) if id not in tokenizer.special.values()]
    for _ in range(300):
        ids = rng.choices(ordinary, k=rng.randrange(1, 12))
        right = other.decode(ids, clean_up_tokenization_spaces=False)
        assert tokenizer.decode(ids) == right
        parts = [tokenizer.bytes_of(id, before) for id, before in zip(ids, [None, *ids], strict=False)]
        assert b"".join(parts).decode().strip() == right.strip()


def test_files_are_written_again(folder: Path, tokenizer: SentencePieces, tmp_path: Path) -> None:
    """Byte by byte where they are models; with lists of their own as well."""
    for name, content in tokenizer_files(tokenizer).items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert {path.name for path in tmp_path.iterdir()} == {"source.spm", "target.spm", "vocab.json"}
    again = load_tokenizer(tmp_path)
    assert again is not None
    assert again.encode(FRENCH) == tokenizer.encode(FRENCH)

    own = dict(zip(["</s>", "<unk>", *pieces(tokenizer.model), *CODES, "<pad>"], range(999), strict=False))
    assert len(own) < len(tokenizer)
    (tmp_path / "target_vocab.json").write_text(json.dumps(own))
    with pytest.raises(CheckpointError, match="special tokens must have the same ids in both"):
        load_tokenizer(tmp_path)


def test_a_folder_translates(folder: Path, tokenizer: SentencePieces, tmp_path: Path) -> None:
    """A model with this vocabulary, saved by `transformers`: text in, text out, both ways of naming a language."""
    size = len(tokenizer)
    other = hugging_face(
        3,
        vocab_size=size,
        decoder_vocab_size=size,
        pad_token_id=size - 1,
        decoder_start_token_id=size - 1,
        eos_token_id=0,
        bos_token_id=0,
        forced_eos_token_id=0,
        bad_words_ids=[[size - 1]],
    )
    other.save_pretrained(tmp_path / "m")
    theirs(folder).save_pretrained(tmp_path / "m")
    model = gf.load(tmp_path / "m", engine="torch").expect(Translator)
    assert model.languages == ["fra", "deu"]
    with pytest.raises(InputError, match="name the language to translate to, one of fra, deu"):
        model.translate("Once upon a time")
    one = model.translate("Once upon a time", to="deu", max_new_tokens=8)
    same = model.translate(">>deu<<Once upon a time", max_new_tokens=8)
    assert one.tokens == same.tokens
    reader = theirs(tmp_path / "m")
    inputs = reader(">>deu<<Once upon a time", return_tensors="pt")
    right = other.generate(**inputs, num_beams=4, max_new_tokens=8)[0].tolist()
    assert one.tokens == [id for id in right[1:] if id != 0]

    model.save(tmp_path / "again")
    assert theirs(tmp_path / "again").decode(one.tokens) == reader.decode(one.tokens)
    again = gf.load(tmp_path / "again", engine="torch").expect(Translator)
    assert again.translate("Once upon a time", to="deu", max_new_tokens=8).tokens == one.tokens


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("source.spm", b"no model", r"source\.spm: it is not a model of SentencePiece"),
        ("target.spm", b"", r"target\.spm: it is not a model of SentencePiece"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1}', "vocab.json has no <pad>"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 9}', "are not 0, 1, 2 … without a gap"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 2}', r"target\.spm: \d+ of its \d+ pieces are not in vocab"),
        ("vocab.json", b'{"</s>": "0"}', "the id of '</s>' is not a whole number"),
    ],
)  # fmt: skip
def test_broken_files(folder: Path, tmp_path: Path, name: str, content: bytes, words: str) -> None:
    """One sentence each, with the file."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        load_tokenizer(tmp_path)


def test_a_file_that_is_missing(folder: Path, tmp_path: Path) -> None:
    """It is named."""
    for name in ("source.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(CheckpointError, match=r"holds source\.spm without target\.spm"):
        load_tokenizer(tmp_path)


def test_there_are_no_merges_to_watch(tokenizer: SentencePieces) -> None:
    """Said in a sentence."""
    with pytest.raises(InputError, match="has no merges"):
        tokenizer.watch("Once")
