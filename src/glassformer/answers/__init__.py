"""Answers: one file per subject, each with its questions, typed answers, tables, drawings and sentences.

`QUESTIONS` is the one table of what can be asked: a name is the same in Python, on the command line, over
HTTP and as the kind of the answer. Modules are imported on demand, so importing this package loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer

CAUSAL, ATTENDS, WRITES = frozenset({"causal"}), frozenset({"attends"}), frozenset({"writes"})
COMPOSES = frozenset({"composes"})
SOURCE, RECURRENT = frozenset({"source"}), frozenset({"recurrent"})
LAYERS, NEURONS = frozenset({"layers"}), frozenset({"neurons"})  # which a handle derives from the stacks

# What a model without a capability does not have, as the end of a sentence.
LACKS = {
    "writes": "does not generate text",
    "causal": "does not predict the next token",
    "attends": "has no layers of attention heads",
    "source": "has no encoder",
    "encodes": "does not encode a text",
    "recurrent": "has no recurrent state",
    "draws": "draws no pictures",
    "labels": "labels no texts",
    "composes": "writes no music",
    "extracts": "does not answer at the end of a text",
    "layers": "has no stack of layers with a residual stream",
    "neurons": "has no neurons of feed-forward layers",
}


class Question(NamedTuple):
    """Where a question is answered, what a model needs to answer it, and what it asks."""

    module: str
    help: str
    needs: frozenset[str] = frozenset()


QUESTIONS: dict[str, Question] = {
    "top": Question("tokens", "the likeliest next tokens, and which of them may be sampled", CAUSAL),
    "tokens": Question("tokens", "the tokens of a text and their ids"),
    "merges": Question("tokens", "how the words of a text become tokens, merge by merge"),
    "embedding": Question("tokens", "what goes into the first block: token and position vectors"),
    "probabilities": Question("tokens", "how probable every generated token was", WRITES),
    "beams": Question("beams", "beam search as a tree: what was continued, dropped, and ended best", WRITES),
    "attention": Question("attention", "where heads attend", ATTENDS),
    "heads": Question("attention", "what kind of head each is", ATTENDS),
    "find_heads": Question("attention", "which heads attend from one word to another", ATTENDS),
    "steps": Question("attention", "one query step by step: q·k, ÷ √K, mask, softmax, values", ATTENDS),
    "rollout": Question("attention", "attention through all layers", ATTENDS),
    "positions": Question("positions", "where a token is: sinusoidal positions in both layouts"),
    "robot": Question("attention", "the article's table: robot must obey orders"),
    "lens": Question("lens", "what every layer would predict", CAUSAL | LAYERS),
    "rankings": Question("lens", "the ranks of generated tokens in every layer", CAUSAL | WRITES | LAYERS),
    "rankings_watch": Question("lens", "the ranks of some words in every layer", CAUSAL | LAYERS),
    "attribution": Question(
        "lens", "logit attribution: what heads and layers add to a logit", CAUSAL | LAYERS
    ),
    "residual": Question("lens", "one position's vector through the layers", CAUSAL | LAYERS),
    "saliency": Question("saliency", "which earlier tokens made the next ones likely", CAUSAL | WRITES),
    "alignment": Question(
        "alignment", "which source words each word of a translation was written from", CAUSAL
    ),
    "unroll": Question(
        "unroll", "a recurrent network reads state by state, and writes word by word", SOURCE | RECURRENT
    ),
    "shapes": Question("shapes", "the shapes of recurrent networks: one to many, many to one, many to many"),
    "journey": Question(
        "journey", "one written word, through encoder and decoder", CAUSAL | SOURCE | ATTENDS | LAYERS
    ),
    "targets": Question(
        "targets", "one-hot rows of a training, and what is predicted before and after it", CAUSAL | WRITES
    ),
    "neurons": Question("neurons", "which neurons fire at which tokens", NEURONS),
    "factors": Question("neurons", "what neurons have in common: factors over the tokens", NEURONS),
    "clusters": Question("neurons", "neurons that fire at the same tokens, in groups", NEURONS),
    "promotes": Question("neurons", "which tokens one neuron makes likelier", CAUSAL | NEURONS),
    "examples": Question("neurons", "where in many texts one neuron fires most", NEURONS),
    "edit": Question(
        "edits", "change heads, neurons or layers, and compare what the model predicts", CAUSAL | WRITES
    ),
    "edited": Question("edited", "a translation, with edits and without", CAUSAL),
    "sweep": Question("edits", "activation patching: where two texts differ inside", CAUSAL),
    "head_ablation": Question("ablation", "the score of a model without each of its heads", ATTENDS),
    "diff": Question("diff", "two models on one text, token by token", CAUSAL | LAYERS),
    "cache": Question("cache", "what each step computes and finds in the KV cache", WRITES | ATTENDS),
    "roll": Question("music", "the notes of a piece as a piano roll", COMPOSES),
    "events": Question("music", "the events that a piece is written in, and their one-hot columns", COMPOSES),
    "arcs": Question("music", "which notes each head attends to from one note", COMPOSES | ATTENDS),
    "note_saliency": Question("music", "which notes before it made a note likely", COMPOSES | CAUSAL),
    "parameters": Question("model", "where a model's parameters are"),
    "curve": Question("training", "the loss of a training over its tokens"),
    "training_rows": Question("training", "the rows of features and label that a text becomes"),
    "pair_rows": Question("training", "pairs as a decoder learns them: source, tag, and the target"),
    "update": Question("training", "one training step: predict, error, update", CAUSAL),
}


def ask(name: str, *about: Any, **how: Any) -> "Answer":
    """Answer a question by its name; `about` is what it takes first: a text, a model, a tokenizer."""
    if name not in QUESTIONS:
        raise InputError(f"{name!r} is not a question; there is {', '.join(QUESTIONS)}")
    for subject in (*about[:1], *how.values()):  # of a comparison, both models
        check(name, subject)
    module = import_module(f"glassformer.answers.{QUESTIONS[name].module}")
    found: Answer = getattr(module, name)(*about, **how)
    return found


def check(name: str, subject: Any) -> None:
    """Refuse a question that a model cannot answer, in one sentence that says what it lacks."""
    needs = QUESTIONS[name].needs
    if not needs or not hasattr(subject, "capabilities"):  # a tokenizer, files: nothing that could lack it
        return
    missing = sorted(needs - subject.capabilities)
    if missing:
        raise InputError(f"{name}: {subject.name} {LACKS[missing[0]]}")
