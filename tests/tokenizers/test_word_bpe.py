"""GPT-1's tokenizer: the ids and texts of `transformers`, on a small vocabulary in the form of OpenAI's
files.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, OpenAIGPTTokenizer

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.vocabulary import load_tokenizer, tokenizer_config
from glassformer.tokenizers import TextStream, WordBPE, pieces, train_word_tokenizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "gpt1"
OURS = load_tokenizer(FIXTURE)
THEIRS = OpenAIGPTTokenizer.from_pretrained(FIXTURE)
TEXTS = [
    "Alice was beginning to get very tired of sitting by her sister on the bank.",
    "Élan  VITAL\n\nnew\tline, don't! rabbit-hole (1865)",
    "snow☃man 中文字 q",
    "x\u0000y\u200dz\ufffd \u00a0 \u3000",
    "a" * 300,
    "",
    "   ",
]


def word_bpe() -> WordBPE:
    assert isinstance(OURS, WordBPE)
    return OURS


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_texts_are_those_of_transformers(text: str) -> None:
    """Lower-cased, cleaned and cut in the same way, and the same text comes back."""
    ids = word_bpe().encode(text)
    assert ids == THEIRS(text)["input_ids"]
    assert word_bpe().decode(ids) == THEIRS.decode(ids, clean_up_tokenization_spaces=False)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_has_the_ids_of_transformers(text: str) -> None:
    """Whatever characters it has; a special token in a text is plain text here, and a token there."""
    if "<unk>" not in text:
        assert word_bpe().encode(text) == THEIRS(text)["input_ids"]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_merges_that_are_watched_make_the_ids(text: str) -> None:
    """Every word begins as its letters, ends as its pieces, and the pieces have the ids."""
    watched = word_bpe().watch(text)
    assert [id for word in watched for id in word.ids] == word_bpe().encode(text)
    for word in watched:
        assert word.pieces_after(len(word.steps)) == word.pieces
        assert word.pieces_after(0)[-1].endswith("</w>")
        assert "".join(word.pieces) == word.symbols


def test_a_word_is_merged_step_by_step() -> None:
    """The end of the word belongs to its last letter from the start."""
    (word,) = word_bpe().watch("Her")
    assert word.pieces_after(0) == ["h", "e", "r</w>"]
    assert word.pieces == ["her</w>"]
    assert len(word.steps) == 2


def test_the_blank_comes_before_the_next_word() -> None:
    """A token marks the end of a word, not whether another follows: prompt and pieces make readable text."""
    prompt, answer = word_bpe().encode("Alice was"), word_bpe().encode("getting sleepy.")
    stream = TextStream(word_bpe().bytes_of, after=prompt[-1])
    streamed = [stream.push(id) for id in answer]
    text = word_bpe().decode(prompt) + "".join(streamed) + stream.finish()
    assert text == "alice was getting sleepy ."
    assert streamed[0].startswith(" ")
    whole = prompt + answer
    assert b"".join(pieces(word_bpe(), whole)).decode() == text == word_bpe().decode(whole)


def test_special_tokens() -> None:
    """They are plain text unless asked for; the unknown character has one."""
    tokenizer = train_word_tokenizer(["a text to learn from"], 200)
    assert set(tokenizer.special) == {"<|endoftext|>", "<unk>"}
    assert tokenizer.end == tokenizer.special["<|endoftext|>"]
    text = "a text<|endoftext|>to learn"
    ids = tokenizer.encode(text, special=True)
    assert ids.count(tokenizer.end) == 1
    assert tokenizer.end not in tokenizer.encode(text)
    assert tokenizer.watch(text, special=True)[2].ids == [tokenizer.end]
    assert tokenizer.encode("☃") == [tokenizer.special["<unk>"]]


def test_learning_a_vocabulary() -> None:
    """Frequent words become one token; every character of the text may be anywhere in a word."""
    tokenizer = train_word_tokenizer(["the cat and the dog “über” all"] * 9, 300)
    assert len(tokenizer.encode("The the THE")) == 3
    assert tokenizer.special["<unk>"] not in tokenizer.encode("zebra xylophone ubu tac eht 0z ! ”a“")
    assert len(tokenizer) <= 300
    again = train_word_tokenizer(["the cat and the dog “über” all"] * 9, 300)
    assert again.to_json() == tokenizer.to_json()
    with pytest.raises(InputError, match="at least 138"):
        train_word_tokenizer(["x"], 137)


def test_files_both_ways(tmp_path: Path) -> None:
    """What we write, `transformers` and we read, to the same ids and ends."""
    tokenizer = train_word_tokenizer(["the cat and the dog ran over the hill"] * 3, 180)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(tokenizer, 512)))
    (tmp_path / "config.json").write_text('{"model_type": "openai-gpt"}')
    theirs, back = AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    assert isinstance(back, WordBPE)
    for text in [*TEXTS, "the cat<|endoftext|>dog"]:
        assert (
            theirs(text)["input_ids"]
            == tokenizer.encode(text, special=True)
            == back.encode(text, special=True)
        )
    assert theirs.eos_token_id == tokenizer.end == back.end
    assert theirs.unk_token_id == tokenizer.special["<unk>"]
    assert back.to_json() == tokenizer.to_json()


def test_we_read_what_transformers_writes(tmp_path: Path) -> None:
    """Its `tokenizer.json` of the same vocabulary."""
    THEIRS.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    back = load_tokenizer(tmp_path)
    assert isinstance(back, WordBPE)
    for text in TEXTS:
        assert back.encode(text) == word_bpe().encode(text)


BROKEN = {
    "no unknown token": (lambda whole: whole["model"].update(unk_token=None), "unk_token"),
    "another normalizer": (lambda whole: whole.update(normalizer=None), "normalizer"),
    "another way to cut": (lambda whole: whole["pre_tokenizer"].update(type="Whitespace"), "known here"),
    "a merge of nothing": (lambda whole: whole["model"]["merges"].append(["zz", "zz"]), "zz"),
    "a token of no merge": (lambda whole: whole["model"]["vocab"].update(zzz=len(OURS or ())), "zzz"),
    "a hole": (lambda whole: whole["model"]["vocab"].update(z=9999), "ids"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, how: str) -> None:
    """In one sentence that names the file and what is wrong with it."""
    change, word = BROKEN[how]
    whole = json.loads(word_bpe().to_json())
    change(whole)
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json.*{word}"):
        load_tokenizer(tmp_path)


def test_ids_that_are_none() -> None:
    """Refused in words."""
    with pytest.raises(InputError, match="not a token id"):
        word_bpe().decode([len(word_bpe())])


def test_long_texts_take_slices() -> None:
    """Cut at blanks, a long text has the ids of its parts."""
    text = "Alice was beginning to get very tired. " * 5000
    assert len(text) > 1 << 17
    assert word_bpe().encode(text) == word_bpe().encode(text[:39]) * 5000
