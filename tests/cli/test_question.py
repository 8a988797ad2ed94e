"""The verbs that look inside: tables for people, numbers for programs, one sentence for mistakes."""

import csv
import io
import json
from pathlib import Path

import pytest
from toys import Encoder, WithoutAttention, add_family, toy_folder

READS = "attends, encodes, layers, neurons"
TEXT = "The cat sat. The cat"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", TEXT], ["layer", "previous", "induction"]),
        (["attention", "-l", "1", TEXT], ["mean of all heads", "attends to 1"]),
        (["attention", "-l", "1", "--head", "0", "--words", TEXT], ["layer 1, head 0", "␣sat"]),
        (["attention", "-l", "1", "--head", "0", "--steps", "sat", TEXT], ["q·k", "softmax", "−∞"]),
        (["attention", "--find-heads", "sat", "cat", TEXT], ["from 'sat' to 'cat'"]),
        (["attention", "--robot"], ["obey", "0.481"]),
        (["lens", TEXT], ["embed", "blocks.0.mid", "KL divergence"]),
        (["lens", "-p", "all", "-w", " mat", TEXT], ["rank of ' mat'"]),
        (["saliency", "-n", "1", TEXT], ["source", "share", "\ndeletion "]),
        (["saliency", "-n", "1", "--method", "occlusion", "--not", " dog", "--no-test", TEXT], ["occlusion"]),
        (["neurons", "-k", "1", TEXT], ["activation"]),
        (["neurons", "--factors", "2", "-l", "0", TEXT], ["2 factors"]),
        (["diff", "storyteller", "storyteller", TEXT], ["difference", "0.000"]),
        (["attention", "--rollout", "-l", "1", TEXT], ["through layers 0 to 1"]),
        (["attention", "-l", "1", "--values", TEXT], ["value-weighted attention"]),
        (["attention", "--cache", "3", TEXT], ["computed", "reused", "bytes per layer"]),
        (
            ["lens", "--attribution", "--token", " dog", "--not", " cat", TEXT],
            ["logit attribution of “␣dog” − “␣cat”, logit difference", "blocks.0.mlp"],
        ),
        (["lens", "--rankings", "2", TEXT], ["ranks of the generated tokens", "blocks.1.mid"]),
        (["saliency", "-n", "1", "--words", "--no-test", TEXT], ["␣sat"]),
        (["neurons", "--clusters", "2", "-l", "0", TEXT], ["2 clusters"]),
        (["neurons", "--promotes", "1.17", "-k", "4"], ["promoted by neuron 17, layer 1"]),
        (["show", "--training-rows", TEXT], ["features", "label", "␣sat"]),
        (["show", "--update", TEXT], ["one update toward “␣cat”", "gradient norm", "logit after"]),
        (
            ["edit", "--zero", "blocks.*.attn", "-n", "3", TEXT],
            [
                "zero ablation of blocks.*.attn (KL divergence",
                f"before: {TEXT}",
                f"after: {TEXT}",
                "difference",
            ],
        ),
        (
            [
                "edit",
                "--scale",
                "blocks.0.mlp.neurons[3]=5",
                "--mean",
                "blocks.1.attn.mix[0]",
                "-n",
                "0",
                TEXT,
            ],
            ["mean ablation of blocks.1.attn.mix[0], scaling blocks.0.mlp.neurons[3] by 5"],
        ),
        (
            ["edit", "--patch", "blocks.1.out", "--from", "The girl", "--at", "1", "-n", "0", "The boy"],
            ["patching blocks.1.out"],
        ),
        (
            ["edit", "--toward", "so happy", "--away", "so sad", "--by", "2", "-n", "0", "He was"],
            ["steering blocks.", "by 2"],
        ),
        (
            [
                "edit",
                "--sweep",
                "--from",
                "The girl lost",
                "--answer",
                " her",
                "--not",
                " his",
                "The boy lost",
            ],
            ["activation patching", "corrupted", "restored", "1.000"],
        ),
    ],
)
def test_tables(arguments: list[str], words: list[str], printed) -> None:
    """Each names what it shows, and cuts nothing in a pipe."""
    shown = printed(*arguments)
    for word in words:
        assert word in shown
    assert "…" not in shown
    assert "(KL divergence 0.000 nats)" not in shown  # an edit that does nothing


def test_numbers(tmp_path: Path, printed) -> None:
    """As JSON on stdout, as JSON or CSV in a file."""
    found = json.loads(printed("lens", "--json", TEXT))
    assert len(found["values"]["ranks"][0]) == len(found["tokens"])
    printed("lens", TEXT, "-o", str(tmp_path / "lens.json"))
    saved = json.loads((tmp_path / "lens.json").read_text())
    assert saved.pop("view")["kind"] == "matrix"
    assert saved == found
    printed("lens", "-p", "all", TEXT, "-o", str(tmp_path / "lens.csv"))
    lines = list(csv.reader(io.StringIO((tmp_path / "lens.csv").read_text())))
    assert len(lines) == 1 + len(found["tokens"]) * len(found["values"]["stages"])


ABOUT_A_STACK = [
    ["attention"],
    ["attention", "-l", "1"],
    ["attention", "--find-heads", "sat", "cat"],
    ["attention", "-l", "1", "--head", "0", "--steps", "sat"],
    ["attention", "--rollout"],
    ["neurons"],
    ["neurons", "--factors", "2"],
    ["neurons", "--clusters", "2"],
]


@pytest.mark.parametrize("arguments", ABOUT_A_STACK, ids=" ".join)
def test_the_stacks_of_a_model_that_has_one(arguments: list[str], printed) -> None:
    """It can be named; another one is refused with a list; it has no attention to a source text."""
    message = printed(*arguments, "--stack", "encoder", TEXT, code=2)
    assert message == "glass: stack 'encoder' does not exist; this model has: blocks\n"
    if arguments[-1] != "2":  # factors and clusters are slow
        assert printed(*arguments, "--stack", "blocks", TEXT) == printed(*arguments, TEXT)
    if arguments[0] == "attention" and "--rollout" not in arguments:
        message = printed(*arguments, "--cross", TEXT, code=2)
        assert message == "glass: attention 'cross' does not exist in the stack blocks, which has: attn\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", "--head", "1", TEXT], "--head needs --layer"),
        (["attention", "--rollout", "--cross", TEXT], "--cross does not go with --rollout"),
        (["attention", "--cache", "2", "--stack", "blocks", TEXT], "--stack does not go with --cache"),
        (["attention", "--robot", "--cross"], "--cross does not go with --robot"),
        (["neurons", "--promotes", "1.2", "--stack", "blocks"], "--stack does not go with --promotes"),
        (["attention", "--steps", "cat", TEXT], "--steps needs --layer and --head"),
        (["attention", "--find-heads", "cat"], "requires 2 arguments"),
        (["attention", "-l", "99", TEXT], "layer 99 is out of range"),
        (
            ["attention", "--find-heads", "cat", "The", "-l", "1", TEXT],
            "--layer does not go with --find-heads, which is about all",
        ),
        (["attention", "--cache", "2", "-l", "0", TEXT], "--layer does not go with --cache"),
        (["attention", "--cache", "-1", TEXT], "--cache must be at least 0, not -1"),
        (["attention", "--robot", TEXT], "TEXT does not go with --robot"),
        (["attention", "--json", "-o", "x.json", TEXT], "--json prints and -o saves; give one of them"),
        (
            ["attention", "-l", "1", "--as", "pie", "-o", "x.svg", TEXT],
            "'pie' is not a drawing of attention; there is matrix",
        ),
        (["lens", "--rankings", "2", "-p", "0", TEXT], "--position does not go with --rankings"),
        (["lens", "--rankings", "-3", TEXT], "--rankings must be at least 0, not -3"),
        (
            ["lens", "--attribution", "--token", " her", "--not", " her", TEXT],
            "the foil is the token itself",
        ),
        (
            ["lens", "-w", " unbelievable", TEXT],
            "is not one token but ' un' + 'b' + 'el' + 'ie' + 'v' + 'able'\n",
        ),
        (["neurons", "--promotes", "1.17", TEXT], "TEXT does not go with --promotes"),
        (["neurons", "--promotes", "1.17", "-k", "0"], "-k must be at least 1, not 0"),
        (["edit", "--zero", "blocks.0.mlp", "--from", "x", TEXT], "--from needs --patch or --sweep"),
        (["edit", "--zero", "blocks.0.mlp", "--answer", "x", TEXT], "--answer does not go with an edit"),
        (
            ["edit", "--zero", "blocks.0.mlp", "--site", "x", TEXT],
            "--site needs --toward and --away, or --sweep",
        ),
        (
            ["edit", "--sweep", "--from", TEXT, "--answer", "a", "--not", "b", "--at", "1", TEXT],
            "--at does not go with --sweep",
        ),
        (["edit", "--zero", "blocks.0.mlp", "--save", "/nowhere/x.json", TEXT], "cannot be written"),
        (["lens", ""], "the text is empty"),
        (["lens", "-p", "dragon", TEXT], "the word 'dragon' is not in the text"),
        (
            ["lens", TEXT, "-o", "x.doc"],
            "x.doc: a picture is saved as .svg, .png, .pdf, .html, numbers as .json or .csv",
        ),
        (["lens", TEXT, "-o", "/nowhere/x.csv"], "cannot be written"),
        (["saliency", "--method", "magic", TEXT], "method 'magic' is none of"),
        (["saliency", "-n", "0", TEXT], "there is no token to explain"),
        (["neurons", "--factors", "99", TEXT], "factors must be between 1 and the"),
        (["neurons", "--factors", "2", "--clusters", "2", TEXT], "ask one at a time"),
        (
            ["neurons", "--clusters", "0", "--corpus", "x", TEXT],
            "--examples LAYER.NEURON and --corpus belong together",
        ),
        (["neurons", "--examples", "1.17"], "--examples LAYER.NEURON and --corpus belong together"),
        (["neurons", "--promotes", "17"], "'17' is not LAYER.NEURON"),
        (["neurons", "--promotes", "1.99999"], "neuron 99999 is out of range"),
        (["neurons", "--examples", "1.2", "--corpus", "/nowhere"], "/nowhere: there is no such file"),
        (["attention", "--values", TEXT], "--values needs --layer"),
        (["lens", "--token", " cat", TEXT], "--token needs --attribution"),
        (["lens", "--attribution", "-p", "all", TEXT], "--attribution needs one --position"),
        (["lens", "--residual", "-p", "all", TEXT], "--residual needs one --position"),
        (["edit", TEXT], "name an edit: --zero"),
        (["edit", "--sweep", "--zero", "embed", TEXT], "--sweep and an edit are 2 questions"),
        (["attention", "--rollout", "--cache", "2", TEXT], "--rollout and --cache are 2 questions"),
        (["attention", "--words", TEXT], "--words joins the tokens of one layer"),
        (["attention", "-l", "1", "--head", "0", "--rollout", TEXT], "--head goes with"),
        (["attention", "-l", "1", "--head", "0", "--steps=--5", TEXT], "the word '--5' is not in the text"),
        (["lens", "--rankings", "2", "-w", " cat", TEXT], "--rankings and --watch are 2 questions"),
        (["show", "--curve", "--update", TEXT], "--curve and --update are 2 questions"),
        (["show", "--update", "The"], "at least two tokens"),
        (["show", "--training-rows", TEXT, "--window", "0"], "window must be a whole number of at least 1"),
        (["saliency", "--method", "rollout", "--not", " cat", TEXT], "--not has no meaning for rollout"),
        (["neurons", "-l", "3-1", TEXT], "neither a layer nor a range"),
        (["neurons", "--clusters", "2", "Once"], "clusters must be between 1 and the 1 ways"),
        (["edit", "--zero", "blocks.99.mlp", TEXT], "no site matches 'blocks.99.mlp'"),
        (["edit", "--zero", "blocks.0.attn.mix[99]", TEXT], "entries, counted from 0"),
        (["edit", "--zero", "blocks.0.out[1]", TEXT], "take an index"),
        (["edit", "--scale", "blocks.0.mlp", TEXT], "is not ADDRESS=NUMBER"),
        (["edit", "--patch", "blocks.0.mlp", TEXT], "--patch needs --from"),
        (["edit", "--patch", "blocks.0.mlp", "--from", "A", TEXT], "has not as many tokens as"),
        (["edit", "--toward", "good", TEXT], "--toward and --away belong together"),
        (["edit", "--sweep", TEXT], "--sweep needs --from, --answer and --not"),
        (
            ["edit", "--sweep", "--from", "A", "--answer", " a", "--not", " the", TEXT],
            "as many tokens as each other",
        ),
        (["attention", "--head", "0.x", TEXT], "'0.x' is neither a head of --layer nor LAYER.HEAD"),
        (["attention", "--robot", "--rollout"], "--rollout does not go with --robot"),
        (["neurons", "--promotes", "blocks.1.attn.mix[2]"], "is not LAYER.NEURON"),
        (["neurons", "-s", "1", TEXT], "--seed needs --factors or --clusters"),
        (["neurons", "--factors", "2", "-k", "3", TEXT], "-k does not go with --factors"),
        (["saliency", "--steps", "8", TEXT], "--steps needs --method integrated_gradients"),
        (["lens", "--residual", "-k", "3", TEXT], "-k is how many candidates"),
        (["lens", "--dark", TEXT], "--dark is for a saved picture: it needs -o"),
        (["lens", "--width", "400", "-o", "x.csv", TEXT], "--width is for pictures, and x.csv holds numbers"),
        (["show", "--window", "4"], "--window needs --training-rows"),
        (["show", "--lr", "1"], "--lr needs --update"),
        (["edit", "--zero", "blocks.0.mlp", "--by", "2", TEXT], "--by needs --toward and --away"),
        (["edit", "--edit", "x.json", "--at", "1", TEXT], "--at is for the edits of flags"),
        (
            ["edit", "--sweep", "--from", TEXT, "--answer", " a", "--not", " the", TEXT],
            "there is nothing to restore",
        ),
        (["top", "-i", "--json", TEXT], "--json does not go with --interactive"),
        (["generate", "-i", "--no-stream"], "--no-stream does not go with --interactive"),
        (["generate", "--num-beams", "2", "--top-k", "3", TEXT], "--top-k does not go with --num-beams"),
        (["generate", "--length-penalty", "2", TEXT], "--length-penalty is for beam search"),
        (["tokenize", "--embedding", "--merges", TEXT], "--merges and --embedding are 2 questions"),
        (["tokenize", "--ids", "--json", TEXT], "--json does not go with --ids"),
        (["tokenize", "--vocab-size", "9", TEXT], "--vocab needs --train"),
        (["tokenize", "--train", "x", "-o", "y", TEXT], "TEXT does not go with --train"),
        (["edit", "--edit", "/nowhere.json", TEXT], "/nowhere.json: cannot be read"),
        (["generate", "--edit", "/nowhere.json", TEXT], "/nowhere.json: cannot be read"),
    ],
)
def test_mistakes(arguments: list[str], words: str, printed) -> None:
    """One sentence, exit code 2."""
    shown = printed(*arguments, code=2)
    assert words in shown
    assert shown.count("\n") <= 2


def test_a_place_in_one_word(printed) -> None:
    """LAYER.HEAD and LAYER.NEURON, or their addresses."""
    plain = printed("attention", "-l", "1", "--head", "2", TEXT)
    for head in ("1.2", "blocks.1.attn.pattern[2]"):
        assert printed("attention", "--head", head, TEXT) == plain
    by_address = printed("neurons", "--promotes", "blocks.1.mlp.neurons[17]")
    assert by_address == printed("neurons", "--promotes", "1.17")


def test_a_word_without_its_blank(printed, caplog: pytest.LogCaptureFixture) -> None:
    """A warning: the token is another one than that of the word inside a text."""
    printed("lens", "-w", " is", TEXT)
    assert not caplog.messages
    printed("lens", "-w", "is", TEXT)
    assert caplog.messages == ["'is' and ' is' are two tokens; did you mean ' is', the word inside a text?"]


def test_pictures(tmp_path: Path, printed) -> None:
    """Every verb that looks inside saves what it draws; so do generate, top, tokenize and show."""
    for name, arguments in {
        "attention.svg": ["attention", "-l", "1", TEXT],
        "arcs.svg": ["attention", "-l", "1", "--as", "arcs", "--dark", TEXT],
        "lens.html": ["lens", "--as", "rank", TEXT],
        "watch.png": ["lens", "-w", " is", "-w", " was", TEXT],
        "residual.svg": ["lens", "--residual", TEXT],
        "saliency.pdf": ["saliency", "-n", "1", "--no-test", TEXT],
        "neurons.svg": ["neurons", "--width", "400", TEXT],
        "edit.svg": ["edit", "--zero", "blocks.0.attn", "-n", "2", TEXT],
        "diff.svg": ["diff", "storyteller", "storyteller", TEXT],
        "story.svg": ["generate", "-n", "4", "-s", "1", TEXT],
        "top.svg": ["top", "--top-k", "3", TEXT],
        "merges.svg": ["tokenize", "--merges", TEXT],
        "embedding.csv": ["tokenize", "--embedding", TEXT],
        "tokens.svg": ["tokenize", TEXT],
        "rows.svg": ["show", "--training-rows", TEXT],
        "update.svg": ["show", "--update", TEXT],
        "parameters.svg": ["show"],
    }.items():
        printed(*arguments, "-o", str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 200, name


def test_a_model_that_lacks_what_a_verb_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed
) -> None:
    """One sentence, which names the verb that was asked for and what the model lacks."""
    for net in (WithoutAttention, Encoder):
        add_family(monkeypatch, net)
    deaf = toy_folder(tmp_path / "deaf", WithoutAttention)
    encoder = toy_folder(tmp_path / "encoder", Encoder)
    for flags in ([], ["-l", "1"], ["--rollout"], ["--cache", "2"]):
        shown = printed("attention", "-m", deaf, *flags, "the park", code=2)
        assert shown == f"glass: attention: {deaf} has no layers of attention heads\n"
    for arguments in (
        ["generate"],
        ["top"],
        ["saliency"],
        ["lens", "--rankings", "2"],
        ["attention", "--cache", "2"],
    ):
        shown = printed(*arguments, "-m", encoder, "the park", code=2)
        assert shown.endswith(f"{encoder} cannot continue a text; its capabilities are: {READS}\n")
    assert "activation" in printed("neurons", "-k", "1", "-m", encoder, "the park")
    assert printed("lens", "-m", encoder, "the park", code=2).endswith("does not predict the next token\n")
