"""GPT-2 twice: equal to another library's, and begun with a language model."""

import pytest
import torch
from mutants import mutated
from small import shake, small_net
from transformers import EncoderDecoderConfig, EncoderDecoderModel, GPT2Config

from glassformer.errors import InputError
from glassformer.hub.gpt2 import NAMES
from glassformer.models.encoder_decoder import Config, EncoderDecoder
from glassformer.models.gpt import GPT

MODEL = "models/encoder_decoder.py"
SIZES = {"layers": 2, "heads": 3, "width": 24, "vocab": 97, "context": 40}


def make(build: type[EncoderDecoder] = EncoderDecoder, seed: int = 3) -> EncoderDecoder:
    net = build(Config(**SIZES, decoder_layers=3, pad=96)).initialize(seed)
    shake(net, seed)
    return net.double().eval()


def theirs(net: EncoderDecoder) -> EncoderDecoderModel:
    """The same weights in `transformers`: two GPT-2, the second with attention to what the first has read."""
    sizes = {"n_head": 3, "n_embd": 24, "vocab_size": 97, "n_positions": 40, "n_inner": 96}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0, "attn_implementation": "eager"}
    reads = GPT2Config(n_layer=2, **sizes)
    writes = GPT2Config(n_layer=3, add_cross_attention=True, is_decoder=True, **sizes)
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(reads, writes))
    own = net.state_dict()
    filled = {}
    for name in model.state_dict():
        bare = name.removeprefix("encoder.").removeprefix("decoder.").removeprefix("transformer.")
        half = name.partition(".")[0]
        if bare.startswith(("wte", "wpe", "lm_head")):
            filled[name] = own[NAMES.ours(f"transformer.{bare}" if "lm_head" not in bare else bare)]
        elif bare.startswith("ln_f"):
            ours = bare.replace("ln_f", "norm")
            filled[name] = own[ours if half == "decoder" else f"encoder.{ours}"]
        elif "cross" in bare:
            filled[name] = crossed(own, bare)
        else:
            value = own[f"{half}.{NAMES.ours(f'transformer.{bare}')}"]
            matrix = value.dim() == 2
            filled[name] = value.T if matrix else value
    model.load_state_dict(filled)
    return model.double().eval()


def crossed(own: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """A weight of the attention to the source: keys and values are one matrix there."""
    _, layer, part, *rest = name.split(".")
    leaf = name.rpartition(".")[2]
    at = f"decoder.blocks.{layer}"
    if part == "ln_cross_attn":
        return own[f"{at}.norm_cross.{leaf}"]
    parts = {"q_attn": ["query"], "c_attn": ["key", "value"], "c_proj": ["proj"]}[rest[0]]
    joined = torch.cat([own[f"{at}.cross.{one}.{leaf}"] for one in parts])
    return joined.T if leaf == "weight" else joined


def twice(base: GPT, **sizes: int) -> EncoderDecoder:
    """Both halves begin with a language model."""
    return EncoderDecoder(Config(**SIZES | sizes)).initialize(1).adopt(base)


def ids(rows: int, length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 90, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def difference(net: EncoderDecoder, other: EncoderDecoderModel) -> float:
    """Of the logits, for sources of two lengths in one batch."""
    source, target = ids(2, 9, 1), ids(2, 7, 2)
    source[1, 6:] = 96
    found = other(input_ids=source, attention_mask=(source != 96).long(), decoder_input_ids=target).logits
    return float((net(source, target) - found).abs().max())


def test_it_equals_transformers() -> None:
    """Every logit, in float64, also of a padded source."""
    net = make()
    assert difference(net, theirs(net)) < 1e-9


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.cross(self.norm_cross(x), k, v, memory.mask)", "self.cross(x, k, v, memory.mask)"),
        ("self.cross(self.norm_cross(x), k, v, memory.mask)", "self.cross(self.norm_cross(x), k, v)"),
        ('self.tap("final", self.norm(x))\n\n\nclass', 'self.tap("final", x)\n\n\nclass'),
        ("x + self.drop(self.attn(self.norm1(x), mask, cache))", "x + self.drop(self.attn(x, mask, cache))"),
        ("self.mlp(self.norm2(x))", "self.mlp(self.norm1(x))"),
    ],
)
def test_a_defect_is_seen(old: str, new: str) -> None:
    """One line changed moves a logit by far more than the tolerance."""
    module = mutated(MODEL, MODEL, old=old, new=new)
    assert difference(make(module.EncoderDecoder), theirs(make())) > 1e-4


def test_both_halves_begin_with_a_language_model() -> None:
    """With its first blocks; the attention to the source is new, and so are tokens that it lacks."""
    base = small_net("gpt2", 5)
    assert isinstance(base, GPT)
    net = twice(base, layers=1, decoder_layers=2, vocab=99, pad=98, start=0)
    own, given = net.state_dict(), base.state_dict()
    assert torch.equal(own["tokens.weight"][:97], given["tokens.weight"])
    assert torch.equal(own["encoder.norm.bias"], given["norm.bias"])
    for layer, half in ((0, "encoder"), (0, "decoder"), (1, "decoder")):
        for part in ("attn.qkv.weight", "mlp.down.bias", "norm2.weight"):
            name = f"blocks.{layer}.{part}"
            assert torch.equal(own[f"{half}.{name}"], given[name])
    assert 0 < own["decoder.blocks.1.cross.proj.weight"].abs().mean() < 0.02
    # With no attention to the source, its decoder is the language model.
    for block in net.decoder.blocks:
        block.cross.proj.weight.data.zero_()
    whole = twice(base, pad=96, start=0)
    for block in whole.decoder.blocks:
        block.cross.proj.weight.data.zero_()
    target = ids(2, 7, 2)
    torch.testing.assert_close(whole.eval()(ids(2, 5, 1), target), base(target))
    with pytest.raises(InputError, match="layers is 3, and the model to begin with has 2 blocks"):
        twice(base, layers=3, pad=96, start=0)
