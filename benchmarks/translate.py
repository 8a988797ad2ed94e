"""Speed of translation beside Hugging Face and CTranslate2: a Transformer of opus-mt's size, all in one run.

    python benchmarks/translate.py [--rounds 5] [--json FILE] [--write docs] [--cpu]

32 sources of 5 to 40 tokens become targets of 32 tokens, all as one batch: greedily, and by 4 beams. Each side
lives in a process of its own, CTranslate2 in an environment of its own (made in runs/bench/env the first time);
samples are taken in turn, and one that was disturbed by other processes is taken again. Random weights at the
true size have the speed of trained ones, but would not end: the end token waits until 32 tokens are written. The
fp32 sides must write the same tokens; where they do not, the two choices must be nearly as good as each other.
`--write FOLDER` writes speed-translation.json there, and speed.md anew. `--cpu` is for a machine that others use:
one thread for each side, whose seconds of processor time count, and no sample is taken again.
"""

import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sides import BUSY, Peer, arguments, compare, environment, in_turn

OURS, THEIRS = "glassformer", "transformers"
KINDS = {"CTranslate2 fp32": "float32", "CTranslate2 int8": "int8"}
SIDES = (OURS, THEIRS, *KINDS)
WORK = {"greedy": 1, "4 beams": 4}
SOURCES, SHORTEST, LONGEST, NEW = 32, 5, 40, 32
THREADS = 2
END, PAD = 0, 59513  # as in opus-mt-en-fr, where a target begins with the padding token
TIE = 2e-3  # how far apart two targets' log-probabilities may lie, if the sides choose differently
RUNS = Path("runs/bench")
CHECKPOINT = RUNS / "opus-mt"

Tokens = list[list[int]]
Run = Callable[[Tokens, int], Tokens]  # sources and the number of beams -> targets


def sources() -> Tokens:
    """Sentences of random tokens, each with its end."""
    drawn = random.Random(0)
    lengths = [drawn.randint(SHORTEST, LONGEST) for _ in range(SOURCES)]
    return [[*(drawn.randrange(1, PAD) for _ in range(length - 1)), END] for length in lengths]


def threads() -> int:
    """How many threads a child has."""
    return int(os.environ["OMP_NUM_THREADS"])


def make_checkpoint(folder: Path) -> None:
    """An opus-mt with random weights, as `transformers` writes it; in a process of its own."""
    if not (folder / "model.safetensors").is_file():
        subprocess.run([sys.executable, __file__, "--serve", "checkpoint", str(folder)], check=True)


def write_checkpoint(folder: Path) -> None:
    """Sizes and settings of opus-mt-en-fr, but no token is forced at the end."""
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=PAD + 1, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=512,
        activation_function="swish", scale_embedding=True, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=PAD, forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config)
    settings: Any = GenerationConfig
    model.generation_config = settings(
        bad_words_ids=[[PAD]], decoder_start_token_id=PAD, eos_token_id=END, max_length=512, num_beams=4,
        pad_token_id=PAD, renormalize_logits=True,
    )  # fmt: skip
    model.save_pretrained(folder)


def serve(side: str, folder: str) -> None:
    """A child: load the model, then answer requests on stdin: seconds, tokens or the score of targets."""
    if side == "checkpoint":
        write_checkpoint(Path(folder))
        return
    load = {OURS: serve_ours, THEIRS: serve_theirs}.get(side, serve_ctranslate2)
    run = load(folder, side)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, given = json.loads(line)
        clock = time.process_time if what == "cpu seconds" else time.perf_counter
        began = clock()
        answer: Any = scores(folder, given) if what == "scores" else run(sources(), given)
        if what.endswith("seconds"):
            seconds = clock() - began
            made = [len(row) for row in answer]
            assert made == [NEW] * SOURCES, f"{side} wrote {made} tokens, not {NEW} for each source"
            answer = seconds
        print(json.dumps(answer), flush=True)


def serve_ours(folder: str, _: str) -> Run:
    """What `Translator.translate_many` does between reading and writing text."""
    import torch

    import glassformer as gf
    from glassformer.tasks.translate import Translator

    torch.set_num_threads(threads())
    translator = gf.load(folder).expect(Translator)

    def run(ids: Tokens, beams: int) -> Tokens:
        options = translator.options(num_beams=beams, min_new_tokens=NEW, max_new_tokens=NEW)
        return [answers[0][0] for answers in translator._write(ids, options, None)]

    return run


def serve_theirs(folder: str, _: str) -> Run:
    """Hugging Face's `generate`, with its default attention."""
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(threads())
    model: Any = MarianMTModel.from_pretrained(folder)
    model.eval()

    def run(ids: Tokens, beams: int) -> Tokens:
        longest = max(map(len, ids))
        rows = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in ids])
        mask = (rows != PAD).long()
        out = model.generate(
            input_ids=rows, attention_mask=mask, num_beams=beams, do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW
        )  # fmt: skip
        tokens: Tokens = out[:, 1:].tolist()
        return tokens

    return run


def serve_ctranslate2(folder: str, side: str) -> Run:
    """CTranslate2, which knows tokens by name: here the name is the number."""
    target = Path(f"{folder}-ctranslate2")
    if not target.is_dir():
        convert(folder, target)
    from ctranslate2 import Translator

    translator = Translator(
        str(target), device="cpu", compute_type=KINDS[side], inter_threads=1, intra_threads=threads()
    )

    def run(ids: Tokens, beams: int) -> Tokens:
        out = translator.translate_batch(
            [[str(id) for id in row] for row in ids], beam_size=beams, min_decoding_length=NEW, max_decoding_length=NEW
        )  # fmt: skip
        return [[int(token) for token in row.hypotheses[0]] for row in out]

    return run


def convert(folder: str, target: Path) -> None:
    """The checkpoint in CTranslate2's form; its weights are cast when they are loaded."""
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    class Names:
        """What the converter asks of a tokenizer."""

        eos_token, unk_token = str(END), "1"

        def get_vocab(self) -> dict[str, int]:
            return {str(id): id for id in range(PAD)} | {"<pad>": PAD}

    spec = MarianMTLoader()(MarianMTModel.from_pretrained(folder), Names())
    spec.validate()
    spec.optimize(quantization=None)
    target.mkdir()
    spec.save(str(target))


def scores(folder: str, targets: Tokens) -> list[list[float]]:
    """The log-probability of every token of each source's target, by our model in one pass."""
    import numpy as np

    import glassformer as gf

    net = gf.load(folder).net
    rows = np.array([[PAD, *target[:-1]] for target in targets])
    found = []
    for logits, target in zip(net.given(sources()).logits(rows), targets, strict=True):  # (T, V)
        logits[:, [END, PAD]] = -np.inf
        total = np.log(np.exp(logits, dtype=np.float64).sum(-1))
        found.append([float(one) for one in logits[range(NEW), target] - total])
    return found


def agreement(peers: dict[str, Peer], side: str, beams: int) -> dict[str, Any]:
    """How many targets a side writes as we do, and how far apart the others are.

    A greedy choice is compared with ours at the first token that differs, a beam as a whole.
    """
    ours, theirs = (peers[one].ask(["tokens", beams]) for one in (OURS, side))
    mine, other = (peers[OURS].ask(["scores", targets]) for targets in (ours, theirs))
    gaps = []
    for row, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b:
            first = next(place for place in range(NEW) if a[place] != b[place])
            places = slice(0, NEW) if beams > 1 else slice(first, first + 1)
            gaps.append(abs(sum(mine[row][places]) - sum(other[row][places])))
    return {"targets": len(ours), "equal": len(ours) - len(gaps), "largest gap": max(gaps, default=0.0)}


def measure(rounds: int, *, cpu: bool) -> dict[str, Any]:
    """All sides at all work."""
    make_checkpoint(CHECKPOINT)
    python = {side: environment(RUNS / "env" / "ctranslate2", "ctranslate2") for side in KINDS}
    peers = {
        side: Peer.of(__file__, side, str(CHECKPOINT), threads=1 if cpu else THREADS, python=python.get(side))
        for side in SIDES
    }
    report: dict[str, Any] = {}
    for name, beams in WORK.items():
        found = agreement(peers, THEIRS, beams)
        print(
            f"{name}: {found['equal']} of {found['targets']} targets as by {THEIRS}, gap {found['largest gap']:.1e}"
        )
        if found["largest gap"] > TIE:
            sys.exit(f"{name}: we and {THEIRS} write different targets")
        samples, disturbed = in_turn(
            peers, ["cpu seconds" if cpu else "seconds", beams], rounds, busy=1.0 if cpu else BUSY
        )
        report[name] = compare(name, SOURCES * NEW, samples, disturbed) | {"agreement": found}
    for peer in peers.values():
        peer.end()
    return report


def about(*, cpu: bool) -> dict[str, Any]:
    """The machine, the day and the libraries of a run."""
    from importlib.metadata import version

    from glassformer import machine

    inside = environment(RUNS / "env" / "ctranslate2", "ctranslate2")
    code = "from importlib.metadata import version; print(version('ctranslate2'))"
    found = subprocess.run([str(inside), "-c", code], capture_output=True, text=True, check=True)
    names = ("glassformer", "torch", "numpy", "transformers")
    return {
        "processor": machine.cpu()["name"],
        "system": platform.platform(),
        "threads": 1 if cpu else THREADS,
        "clock": "processor time" if cpu else "time",
        "date": time.strftime("%Y-%m-%d"),
        "versions": {name: version(name) for name in names} | {"ctranslate2": found.stdout.strip()},
    }


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument(
        "--write", type=Path, help="write speed-translation.json and speed.md into this folder"
    )
    parser.add_argument("--cpu", action="store_true", help="one thread, processor time: for a busy machine")
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    work = measure(given.rounds, cpu=given.cpu)
    report = about(cpu=given.cpu) | {"rounds": given.rounds, "work": work}
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")
    if given.write:
        (given.write / "speed-translation.json").write_text(json.dumps(report, indent=2) + "\n")
        sys.path.insert(0, str(Path(__file__).parent / "peers"))
        import page

        page.write_page(given.write)


if __name__ == "__main__":
    main()
