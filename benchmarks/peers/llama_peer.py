"""llama.cpp as a peer, through its Python binding's plain C interface: q8_0 or q4_0, as its own tool
quantizes.
"""

import ctypes
import json
from pathlib import Path
from typing import Any

from adapter import main, read

TENSORS = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
NORMAL, CONTROL = 1, 3  # kinds of tokens in GGUF
SILENT: list[Any] = []  # keeps alive what the library calls


def binding() -> Any:
    """The library's functions, without its log."""
    import llama_cpp as peer

    SILENT.append(peer.llama_log_callback(lambda level, text, data: None))
    peer.llama_log_set(SILENT[-1], None)
    peer.llama_backend_init()
    return peer


def prepare(checkpoint: Path, target: Path, kind: str) -> None:
    """Write a GGUF file in full precision, without a tokenizer, and let the library quantize it."""
    plain = target / "plain.gguf"
    write_plain(checkpoint, plain)
    peer = binding()
    options = peer.llama_model_quantize_default_params()
    options.ftype = {"q8_0": peer.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": peer.LLAMA_FTYPE_MOSTLY_Q4_0}[kind]
    failed = peer.llama_model_quantize(
        str(plain).encode(), str(target / "model.gguf").encode(), ctypes.byref(options)
    )
    assert not failed, "llama.cpp could not quantize the model"
    plain.unlink()


def write_plain(checkpoint: Path, file: Path, *, words: bool = False) -> None:
    """A GGUF file in full precision, with the vocabulary of the checkpoint or without one."""
    import numpy as np
    from gguf import GGUFWriter

    config, weights = read(checkpoint)
    writer = GGUFWriter(str(file), "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    if words:
        add_words(writer, checkpoint)
    else:
        writer.add_tokenizer_model("no_vocab")
    writer.add_tensor("token_embd.weight", weights["wte.weight"])
    writer.add_tensor("position_embd.weight", weights["wpe.weight"])
    names = {"output_norm": "ln_f"}
    names |= {
        f"blk.{i}.{new}": f"h.{i}.{old}" for i in range(config["n_layer"]) for new, old in TENSORS.items()
    }
    for new, old in names.items():
        writer.add_tensor(f"{new}.weight", np.ascontiguousarray(weights[f"{old}.weight"].T))
        writer.add_tensor(f"{new}.bias", weights[f"{old}.bias"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_words(writer: Any, checkpoint: Path) -> None:
    """GPT-2's vocabulary, of the two files that it was published in."""
    ids = json.loads((checkpoint / "encoder.json").read_text())
    merges = (checkpoint / "vocab.bpe").read_text().splitlines()
    end = ids["<|endoftext|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(ids, key=ids.__getitem__))
    writer.add_token_types([CONTROL if id == end else NORMAL for id in range(len(ids))])
    writer.add_token_merges([line for line in merges if line and not line.startswith("#version")])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


class Loaded:
    """A model, and a context that fits the last request."""

    def __init__(self, folder: Path, kind: str, threads: int) -> None:
        self.peer = binding()
        self.threads = threads
        self.model = self.peer.llama_model_load_from_file(
            str(folder / "model.gguf").encode(), self.peer.llama_model_default_params()
        )
        assert self.model, "llama.cpp could not load the model"
        self.vocab = self.peer.llama_vocab_n_tokens(self.peer.llama_model_get_vocab(self.model))
        self.context: Any = None
        self.batch: Any = None
        self.size = (0, 0)

    def room(self, rows: int, length: int) -> None:
        """A context and a batch, as long-lived as a server's."""
        if self.size == (rows, length):
            return
        if self.context:
            self.peer.llama_free(self.context)
            self.peer.llama_batch_free(self.batch)
        options = self.peer.llama_context_default_params()
        options.n_ctx = rows * length
        options.n_batch = rows * length
        options.n_seq_max = rows
        options.kv_unified = True  # a little quicker than a cache per row
        options.n_threads = options.n_threads_batch = self.threads
        self.context = self.peer.llama_init_from_model(self.model, options)
        assert self.context, "llama.cpp could not make a context"
        self.batch = self.peer.llama_batch_init(rows * length, 0, 1)
        self.size = (rows, length)

    def run(self, ids: list[list[int]], new: int) -> list[list[int]]:
        """All rows in one batch; only the last token of each has logits."""
        self.peer.llama_memory_clear(self.peer.llama_get_memory(self.context), False)
        made: list[list[int]] = [[] for _ in ids]
        step, start = ids, 0
        for _ in range(new):
            chosen = self.decode(step, start)
            start += len(step[0])
            for row, token in zip(made, chosen, strict=True):
                row.append(token)
            step = [[token] for token in chosen]
        return made

    def decode(self, step: list[list[int]], start: int) -> list[int]:
        """The likeliest token after each row."""
        import numpy as np

        batch, at = self.batch, 0
        ends = []
        for row, tokens in enumerate(step):
            for position, token in enumerate(tokens, start):
                batch.token[at], batch.pos[at] = token, position
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
                batch.logits[at] = 0
                at += 1
            batch.logits[at - 1] = 1
            ends.append(at - 1)
        batch.n_tokens = at
        failed = self.peer.llama_decode(self.context, batch)
        assert not failed, "llama.cpp could not decode"
        logits = [
            np.ctypeslib.as_array(self.peer.llama_get_logits_ith(self.context, end), (self.vocab,))
            for end in ends
        ]
        return [int(row.argmax()) for row in logits]


if __name__ == "__main__":
    main(prepare, Loaded)
