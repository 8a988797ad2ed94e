"""Small random Marians of the `transformers` library, and how they translate: what ours are compared with."""

from collections.abc import Sequence
from typing import Any

import torch
from small import shake
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

VOCAB, END = 50, 0
PAD = VOCAB - 1  # Marian begins every target with it, too


@torch.no_grad()
def hugging_face(seed: int = 0, *, size: float = 0.4, **changes: Any) -> MarianMTModel:
    """A small one whose every number is random; the larger `size`, the surer it is of its words."""
    sizes = {"vocab_size": VOCAB, "decoder_vocab_size": VOCAB, "d_model": 12, "max_position_embeddings": 40}
    sizes |= {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = {
        "pad_token_id": PAD,
        "decoder_start_token_id": PAD,
        "eos_token_id": END,
        "forced_eos_token_id": END,
    }
    form = {"activation_function": "swish", "scale_embedding": True}
    torch.manual_seed(seed)
    model = MarianMTModel(MarianConfig(**sizes | tokens | form | changes))
    table = model.model.encoder.embed_positions.weight.clone()  # the same in both stacks, and not learned
    shake(model, seed, size)
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.copy_(table)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(seed))
    model.tie_weights()
    if model.config.share_encoder_decoder_embeddings:  # also where the output matrix is another one
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_tokens.weight.copy_(model.model.shared.weight)
    return model.eval()


def filled(rows: Sequence[Sequence[int]], pad: int = PAD) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and where its tokens are."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def their_logits(model: MarianMTModel, sources: Sequence[Sequence[int]], targets: Tensor) -> Tensor:
    """Scores of the next token after every position."""
    ids, mask = filled(sources, model.config.pad_token_id)
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids, attention_mask=mask, decoder_input_ids=targets).logits
    return logits


def their_translations(
    model: MarianMTModel, sources: Sequence[Sequence[int]], **options: Any
) -> tuple[list[tuple[int, ...]], list[float]]:
    """The answers of `generate`, without start, end and padding, and with beams their scores."""
    config = model.config
    ids, mask = filled(sources, config.pad_token_id)
    out = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, return_dict_in_generate=True, output_scores=True,
        **options,
    )  # fmt: skip
    answers = []
    for row in out.sequences[:, 1:].tolist():
        length = row.index(config.eos_token_id) if config.eos_token_id in row else len(row)
        answers.append(tuple(row[:length]))
    scores = out.sequences_scores.tolist() if options.get("num_beams", 1) > 1 else []
    return answers, scores
