"""CTranslate2 as a peer: weights and activations in int8. Tokens are named by their ids."""

import json
from pathlib import Path
from typing import Any

from adapter import main, read


def prepare(checkpoint: Path, target: Path, kind: str) -> None:
    """Fill the library's own description of a GPT-2 and quantize it."""
    from ctranslate2.specs import TransformerDecoderModelSpec
    from ctranslate2.specs.common_spec import Activation

    config, weights = read(checkpoint)
    spec = TransformerDecoderModelSpec.from_config(
        config["n_layer"], config["n_head"], pre_norm=True, activation=Activation.GELUTanh
    )

    def norm(part: Any, name: str) -> None:
        part.gamma, part.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def linear(part: Any, name: str) -> None:
        part.weight, part.bias = weights[f"{name}.weight"].T.copy(), weights[f"{name}.bias"]

    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = weights["wte.weight"]
    decoder.position_encodings.encodings = weights["wpe.weight"]
    norm(decoder.layer_norm, "ln_f")
    for i, layer in enumerate(decoder.layer):
        norm(layer.self_attention.layer_norm, f"h.{i}.ln_1")
        linear(layer.self_attention.linear[0], f"h.{i}.attn.c_attn")
        linear(layer.self_attention.linear[1], f"h.{i}.attn.c_proj")
        norm(layer.ffn.layer_norm, f"h.{i}.ln_2")
        linear(layer.ffn.linear_0, f"h.{i}.mlp.c_fc")
        linear(layer.ffn.linear_1, f"h.{i}.mlp.c_proj")
    names = [str(i) for i in range(config["vocab_size"])]
    spec.register_vocabulary(names)
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = names[-1]
    spec.config.layer_norm_epsilon = config["layer_norm_epsilon"]
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(target))


class Loaded:
    """A generator with one worker."""

    def __init__(self, folder: Path, kind: str, threads: int) -> None:
        from ctranslate2 import Generator

        self.vocab = len(json.loads((folder / "vocabulary.json").read_text()))
        self.generator = Generator(
            str(folder), device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads
        )

    def room(self, rows: int, length: int) -> None:
        """Nothing to do: its cache grows."""

    def run(self, ids: list[list[int]], new: int) -> list[list[int]]:
        """The whole batch at once; the prompt goes in at once, too."""
        out = self.generator.generate_batch(
            [[str(i) for i in row] for row in ids],
            max_length=new,
            min_length=new,
            include_prompt_in_result=False,
        )
        return [row.sequences_ids[0] for row in out]


if __name__ == "__main__":
    main(prepare, Loaded)
