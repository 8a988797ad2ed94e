"""Looking inside beside the peers: GPT-2 small, fp32, 2 threads, random weights, all in one run.

    python benchmarks/explain.py [--rounds 5] [--only lens] [--json FILE]

- gradient × input for 50 tokens behind a prompt of 20: captum and inseq, which run forward and backward
  for each token;
- the logit lens over all layers and positions: TransformerLens' run_with_cache and unembed;
- plain generation: the same model with its taps taken out of the source.

captum and TransformerLens come with the development tools; inseq gets an environment of its own, beside the
checkpoint.
"""

import ast
import inspect
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from decode import make_checkpoint
from sides import Peer, arguments, compare, environment, in_turn

PROMPT, NEW, LENS = 20, 50, 256
THREADS = 2


def ids_of(size: int) -> list[int]:
    """Tokens of no text; none of them twice in a row."""
    return [(7 * at + 13) % 50000 for at in range(size)]


def ours(folder: str) -> Any:
    """gradient × input: one forward pass, all backward passes side by side."""
    import glassformer as gf
    from glassformer.explain.reading import Reading
    from glassformer.explain.saliency import Target, saliency

    ids = ids_of(PROMPT + NEW)
    reading = Reading(gf.load(folder).model, ids[:-1])

    def run() -> int:
        targets = [Target(at, ids[at + 1]) for at in range(PROMPT - 1, PROMPT + NEW - 1)]
        return len(saliency(reading, targets).shares)

    return run


def captum(folder: str) -> Any:
    """captum's InputXGradient on the embeddings, token by token."""
    import torch
    from captum.attr import InputXGradient
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.eval()
    ids = torch.tensor([ids_of(PROMPT + NEW)])
    method = InputXGradient(lambda embedded: model(inputs_embeds=embedded).logits[:, -1])

    def run() -> int:
        found = []
        for at in range(PROMPT, PROMPT + NEW):
            embedded = model.transformer.wte(ids[:, :at]).detach().requires_grad_()
            sizes = method.attribute(embedded, target=int(ids[0, at])).norm(dim=-1)
            found.append(sizes / sizes.sum())
        return len(found)

    return run


def inseq(folder: str) -> Any:
    """inseq's input_x_gradient on a text that is given."""
    import inseq as peer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    theirs: Any = AutoModelForCausalLM.from_pretrained(folder)
    vocabulary = Tokenizer(
        WordLevel({f"w{id}": id for id in range(theirs.config.vocab_size)}, unk_token="w0")
    )
    vocabulary.pre_tokenizer = WhitespaceSplit()
    marks = dict.fromkeys(
        ("unk_token", "pad_token", "bos_token", "eos_token"), f"w{theirs.config.eos_token_id}"
    )
    kind: Any = PreTrainedTokenizerFast
    tokenizer = kind(tokenizer_object=vocabulary, **marks)
    model = peer.load_model(theirs, "input_x_gradient", tokenizer=tokenizer)
    words = [f"w{id}" for id in ids_of(PROMPT + NEW)]

    def run() -> int:
        found = model.attribute(" ".join(words[:PROMPT]), " ".join(words), show_progress=False)
        return int(found[0].target_attributions.shape[1])

    return run


def our_lens(folder: str) -> Any:
    """Every stage at every position: candidates, ranks, entropy, divergence."""
    import glassformer as gf
    from glassformer.explain.lens import lens
    from glassformer.explain.reading import Reading

    reading = Reading(gf.load(folder).model, ids_of(LENS))
    return lambda: lens(reading).ranks.size


def transformerlens(folder: str) -> Any:
    """run_with_cache, then the accumulated residual stream through the last norm and the output matrix."""
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM

    model: Any = TransformerBridge.boot_transformers(
        folder, hf_model=AutoModelForCausalLM.from_pretrained(folder), device="cpu"
    )
    model.enable_compatibility_mode(disable_warnings=True, no_processing=True)
    ids = torch.tensor([ids_of(LENS)])

    @torch.inference_mode()
    def run() -> int:
        _, cache = model.run_with_cache(ids)
        stages = cache.accumulated_resid(layer=-1, incl_mid=True, apply_ln=False)  # (S, B, T, D)
        return int(model.unembed(model.ln_final(stages[:, 0])).shape[:2].numel())

    return run


def taps(folder: str, rounds: int) -> dict[str, Any]:
    """Plain generation beside the same without taps: in one process, on the very same weights."""
    import torch

    import glassformer as gf
    from glassformer.models import gpt
    from glassformer.nn import attention, feedforward

    torch.set_num_threads(THREADS)
    lm = gf.load(folder, engine="torch")
    bare = without_taps(gpt, without_taps(attention), without_taps(feedforward))
    model = bare.GPT(lm.model.config).eval()
    model.load_state_dict(lm.model.state_dict(), assign=True)
    model.tie()
    models = {"taps": lm, "no taps": gf.LanguageModel(model, lm.tokenizer)}
    samples: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(2 * rounds + 1):
        for name in models if turn % 2 else reversed(models):
            began = time.perf_counter()
            models[name].generate(ids_of(64), max_new_tokens=64, temperature=0.0)
            if turn:
                samples[name].append(time.perf_counter() - began)
    return compare("generate (64 + 64)", 64, samples, 0)


def without_taps(module: ModuleType, *others: ModuleType) -> Any:
    """A module in which `tap(name, value)` is `value`; names of the other modules replace its imports."""

    class Bare(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if called == "tap":
                return node.args[1]
            return ast.Constant(False) if called in ("watched", "altered") else node

    made = ModuleType(f"{module.__name__}.bare")
    sys.modules[made.__name__] = made
    tree = ast.fix_missing_locations(Bare().visit(ast.parse(inspect.getsource(module))))
    exec(compile(tree, str(module.__file__), "exec"), vars(made))
    for other in others:
        mine = [name for name in vars(other) if name in vars(made) and not name.startswith("__")]
        vars(made).update({name: vars(other)[name] for name in mine})
    return made


SIDES = {
    "glassformer": ours,
    "captum": captum,
    "inseq": inseq,
    "glassformer lens": our_lens,
    "TransformerLens": transformerlens,
}
WORK = {  # name -> sides, what is counted
    f"gradient × input ({PROMPT} + {NEW})": (("glassformer", "captum", "inseq"), NEW),
    f"lens, {LENS} positions": (("glassformer lens", "TransformerLens"), LENS),
}


def serve(side: str, folder: str) -> None:
    """A child: load, then answer every line on stdin with seconds, or with the peak memory in MB."""
    import torch

    torch.set_num_threads(THREADS)
    run = SIDES[side](folder)
    idle = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        if json.loads(line) == "memory":
            print(json.dumps(memory("VmHWM") - idle), flush=True)
            continue
        began = time.perf_counter()
        run()
        print(json.dumps(time.perf_counter() - began), flush=True)


def memory(kind: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/bench/gpt2"))
    parser.add_argument("--only", default="", help="only the comparisons whose name has this in it")
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    make_checkpoint(given.checkpoint)
    pythons = {"inseq": environment(given.checkpoint.parent / "inseq", "inseq")}
    report: dict[str, Any] = {}
    for name, (sides, count) in ((name, work) for name, work in WORK.items() if given.only in name):
        peers = {
            side: Peer.of(__file__, side, str(given.checkpoint), threads=THREADS, python=pythons.get(side))
            for side in sides
        }
        samples, disturbed = in_turn(peers, "run", given.rounds)
        report[name] = compare(name, count, samples, disturbed)
        report[name]["peak MB above idle"] = most = {side: peer.ask("memory") for side, peer in peers.items()}
        print(
            f"{'':<28} memory above idle: "
            + ", ".join(f"{side} {size:,.0f} MB" for side, size in most.items()),
            flush=True,
        )
        for peer in peers.values():
            peer.end()
    if given.only in "generate (64 + 64)":
        report["generate (64 + 64)"] = taps(str(given.checkpoint), given.rounds)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
