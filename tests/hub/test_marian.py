"""Marian's files: read and written, with the logits and the translations of `transformers`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marian import END, PAD, VOCAB, filled, hugging_face, their_logits, their_translations
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MarianMTModel
from transformers.utils import logging

from glassformer.errors import CheckpointError
from glassformer.generation.beam import beam_search
from glassformer.generation.options import Options
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.generation_config import read_generation_config
from glassformer.hub.marian import read_config, write_config
from glassformer.models.transformer import Config, Transformer
from glassformer.tokenizers.train import train_pair_tokenizer

SOURCES = [[4, 8, 15, END], [16, 23, 42, 1, 2, 3, END], [END]]
OWN = {"share_encoder_decoder_embeddings": False, "vocab_size": 60}  # the source has a vocabulary of its own
FORMS: list[dict[str, Any]] = [
    {},
    OWN,
    {"tie_word_embeddings": False},
    OWN | {"tie_word_embeddings": False},
    {"activation_function": "relu"},
    {"activation_function": "gelu"},
    {"activation_function": "gelu_new"},
    {"scale_embedding": False},
    {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
]
REAL = {"vocab_size": 58101, "decoder_vocab_size": 58101, "d_model": 512, "max_position_embeddings": 512}
REAL |= {"encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
REAL |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
REAL |= {"pad_token_id": 58100, "decoder_start_token_id": 58100}


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.disable_progress_bar()


def saved(model: MarianMTModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def our_logits(model: Any, sources: list[list[int]], targets: Tensor) -> Tensor:
    ids, _ = filled(sources, model.config.pad)
    with torch.no_grad():
        logits: Tensor = model(ids, targets)
    return logits


def some_targets(rows: int, length: int, vocab: int = VOCAB) -> Tensor:
    return torch.randint(0, vocab, (rows, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_folders_both_ways(tmp_path: Path, form: dict[str, Any]) -> None:
    """Theirs is read here and ours there, without a missing or an unknown tensor; the logits are the same."""
    theirs = hugging_face(1, **form)
    ours = load_folder(saved(theirs, tmp_path / "theirs")).model
    targets = some_targets(3, 9)
    right = their_logits(theirs, SOURCES, targets)
    assert right.abs().max() > 1
    assert (our_logits(ours, SOURCES, targets) - right).abs().max() <= 1e-4

    save_folder(tmp_path / "ours", ours)
    back, info = MarianMTModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    unused = {"model.shared.weight"} if not form.get("tie_word_embeddings", True) else set()
    assert info.pop("missing_keys") <= unused  # both stacks have it under a name of their own
    assert not any(info.values()), info
    assert (their_logits(back.eval(), SOURCES, targets) - right).abs().max() <= 1e-4
    for name, value in load_file(tmp_path / "theirs" / "model.safetensors").items():
        assert name in unused or torch.equal(back.state_dict()[name], value), name


def test_files_of_older_versions(tmp_path: Path) -> None:
    """They hold the same matrix under every name, and the table of positions, which is computed here."""
    theirs = hugging_face(2)
    folder = saved(theirs, tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    tensors |= {name: tensors["model.shared.weight"].clone() for name in names}
    for stack in ("encoder", "decoder"):
        name = f"model.{stack}.embed_positions.weight"
        tensors[name] = theirs.state_dict()[name].clone()
    save_file(tensors, folder / "model.safetensors")
    targets = some_targets(3, 9)
    ours = load_folder(folder).model
    assert (our_logits(ours, SOURCES, targets) - their_logits(theirs, SOURCES, targets)).abs().max() <= 1e-4

    tensors["lm_head.weight"][0, 0] += 1
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is not .*, though .* they are tied"):
        load_folder(folder)


def test_a_model_of_ours_translates_the_same_there(tmp_path: Path) -> None:
    """Saved with a vocabulary, it has all that `generate` needs: end, padding, start."""
    tokenizer = train_pair_tokenizer(["a few words to learn from " * 9], 262)
    pad, end = tokenizer.special["<pad>"], tokenizer.end
    assert end is not None
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 12, "vocab": len(tokenizer), "context": 30}
    config = Config(**sizes, layout="halves", head_bias=True, activation="swish", pad=pad, start=end)
    net = Transformer(config).initialize(3).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
        net.head.bias[end] += 8
    save_folder(tmp_path / "m", net, tokenizer=tokenizer)
    theirs = MarianMTModel.from_pretrained(tmp_path / "m").eval()
    sources = [[4, 8, 15, end], [16, 23, 42, 1, 2, 3, end]]
    right, _ = their_translations(theirs, sources, num_beams=3, max_new_tokens=12)
    options = Options(num_beams=3, max_new_tokens=12)
    found = beam_search(net.given(sources), [[end]] * 2, options=options, ends=[end])
    assert [beams[0].tokens for beams in found] == right
    assert {len(answer) for answer in right} == {0, 12}  # one ends, one is cut


def test_its_generation_config_is_read(tmp_path: Path) -> None:
    """As Helsinki-NLP's folders have it."""
    content = {
        "bad_words_ids": [[PAD]], "bos_token_id": 0, "decoder_start_token_id": PAD, "eos_token_id": END,
        "forced_eos_token_id": END, "max_length": 512, "num_beams": 4, "pad_token_id": PAD, "renormalize_logits": True,
    }  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    settings, ends = read_generation_config(tmp_path)
    kept = ("bad_words_ids", "forced_eos_token_id", "num_beams", "renormalize_logits")
    assert settings == {name: content[name] for name in kept}
    assert ends == {END}
    assert Options(**settings).bad_words_ids == [[PAD]]


def test_configurations_go_both_ways() -> None:
    """Every choice that files can hold; the layout of the paper is none of them."""
    sizes: dict[str, Any] = {
        "layers": 2,
        "decoder_layers": 3,
        "heads": 2,
        "width": 12,
        "neurons": 7,
        "context": 9,
    }
    sizes |= {"vocab": 11, "head_bias": True, "layout": "halves", "pad": 10, "start": 4}
    for changes in ({}, {"source_vocab": 12}, {"tied": False}, {"scaled": False}, {"activation": "gelu_erf"}):
        config = Config(**sizes | changes)
        assert read_config(write_config(config), Path("config.json")) == config
    with pytest.raises(
        CheckpointError, match="layout 'alternating': files of this form hold models with layout"
    ):
        write_config(Config(**sizes | {"layout": "alternating"}))


@pytest.mark.parametrize(("changes", "words"), [
    ({"encoder_ffn_dim": 21}, "encoder_ffn_dim and decoder_ffn_dim differ"),
    ({"decoder_attention_heads": 4}, "encoder_attention_heads and decoder_attention_heads differ"),
    ({"d_model": None}, "d_model is missing"),
    ({"d_model": 13}, "width 13 cannot be split into 2 heads"),
    ({"pad_token_id": None}, "pad_token_id is missing"),
    ({"pad_token_id": True}, "pad_token_id is True"),
    ({"pad_token_id": VOCAB}, f"pad {VOCAB} is not a token id of the source's vocabulary"),
    ({"decoder_start_token_id": -1}, "decoder_start_token_id is -1"),
    ({"activation_function": "tanh"}, "activation_function 'tanh' is none of swish"),
    ({"share_encoder_decoder_embeddings": "no"}, "share_encoder_decoder_embeddings must be true or false"),
])  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    """One sentence that names the file and the field."""
    config = hugging_face().config.to_dict() | changes
    with pytest.raises(CheckpointError, match=rf"^config\.json: .*{words}"):
        read_config(config, Path("config.json"))


@pytest.mark.slow
def test_the_true_size_equals_transformers(tmp_path: Path) -> None:
    """Helsinki-NLP's size with random weights: logits, and what four beams write, through real files."""
    theirs = hugging_face(0, size=0.1, **REAL)
    with torch.no_grad():
        theirs.final_logits_bias[0, END] += 6
    ours = load_folder(saved(theirs, tmp_path / "m")).model
    assert ours.config.parameters == sum(parameter.numel() for parameter in ours.parameters())
    rng = np.random.default_rng(0)
    sources = [[*rng.integers(1, 58100, size=size).tolist(), END] for size in (1, 5, 12, 30, 90)]
    for length in (1, 2, 17, 128, 511, 512):
        targets = some_targets(5, length, 58101)
        right = their_logits(theirs, sources, targets)
        difference = (our_logits(ours, sources, targets) - right).abs().max().item()
        print(f"target of {length}: {difference:.1e} of {right.abs().max().item():.1f}")
        assert difference <= 1e-3
        assert (right - theirs.final_logits_bias).std() > 1

    how: dict[str, Any] = {"bad_words_ids": [[58100]], "forced_eos_token_id": END, "max_new_tokens": 24}
    how |= {
        "repetition_penalty": 2.0
    }  # random weights repeat a token, so many of the beams have nearly the same score
    near = 0
    for options in ({}, {"length_penalty": 0.6, "early_stopping": True}, {"renormalize_logits": True}):
        options |= how | {"num_beams": 4, "num_return_sequences": 2}
        tokens, scores = their_translations(theirs, sources, **options)
        prompts = [[58100]] * len(sources)
        found = list(beam_search(ours.given(sources), prompts, options=Options(**options), ends=[END]))
        beams = [beam for several in found for beam in several]
        np.testing.assert_allclose([beam.score for beam in beams], scores, rtol=0, atol=2e-3)
        assert [several[0].tokens for several in found] == tokens[::2]
        near += sum(beam.tokens != right for beam, right in zip(beams, tokens, strict=True))
        print(f"{[len(answer) for answer in tokens]} tokens, scores {np.round(scores, 3).tolist()}")
    print(f"of 30 beams, {near} have another one of nearly the same score in their place")
    assert near <= 3
