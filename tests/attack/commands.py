"""Command lines that work in the folder of `material.py`: what the attack changes, damages or interrupts."""

LONG_VERBS = ("train", "finetune", "bench", "verify")  # their work may take minutes

# Valid values of flags and arguments, by parameter name.
VALID: dict[str, tuple[str, ...]] = {
    "text": ("the cat sat", "the mat and that"),
    "prompt": ("the cat sat", ""),
    "model": ("model", "gpt3", "gpt1", "lora", "run"),
    "one": ("model",),
    "other": ("other", "lora"),
    "source": ("the hat", "ckpt.pt"),
    "what": ("text.txt", "tales.jsonl"),
    "recipe": ("recipe.toml",),
    "file": ("text.txt", "-"),
    "examples": ("examples.jsonl", "examples.txt", "1.17"),
    "edit": ("edits.json",),
    "file_of_edits": ("edits.json",),
    "corpus": ("text.txt", "tales.jsonl"),
    "data": ("text.txt", "tales.jsonl", "text.txt.gz"),
    "train": ("text.txt",),
    "tokenizer": ("model",),
    "output": ("x.svg", "x.png", "x.pdf", "x.html", "x.json", "x.csv", "x/y.svg", "."),
    "out": ("new",),
    "save": ("new.json",),
    "engine": ("auto", "native", "torch"),
    "device": ("cpu",),
    "dtype": ("float32", "float64", "bfloat16", "float16"),
    "revision": ("main",),
    "drawing": ("arcs", "rank", "grid"),
    "method": ("grad_x_input", "gradient", "integrated_gradients", "occlusion", "rollout"),
    "layers": ("0", "0-1"),
    "promotes": ("1.17",),
    "zero": ("blocks.0.attn.mix[1]", "blocks.*.mlp"),
    "mean": ("blocks.0.attn",),
    "scale": ("blocks.1.mlp.neurons[3]=5",),
    "patch": ("blocks.0.out",),
    "site": ("blocks.*.out",),
    "logit_bias": ("7=-100",),
    "stop": ("at",),
    "find_heads": ("cat",),
    "kind": ("gpt2", "gpt3", "gpt1"),
    "optimizer": ("adamw", "muon"),
    "schedule": ("cosine", "linear", "constant"),
    "precision": ("float32", "bfloat16"),
    "parallel": ("ddp", "fsdp"),
    "targets": ("attn.qkv", "mlp.*"),
    "freeze": ("tokens", "blocks.0.*"),
    "activation": ("gelu", "gelu_new"),
    "target": ("./converted", "kept"),
    "field": ("text",),
    "position": ("-1", "cat"),
    "watch": (" mat",),
    "token": (" mat",),
    "foil": (" cat",),
    "answer": (" mat",),
    "weights": ("1",),
}
VALID_ELSE = ("the", "cat", "1", "main")  # for every other parameter that takes text

# Flags that make a training short; a later flag overrides one of these.
SIZES = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--vocab", "270"]
SHORT_FINETUNE = ["--data", "text.txt", "--steps", "2", "--batch", "2", "--no-tensorboard"]
SHORT_TRAINING = [*SHORT_FINETUNE, *SIZES]

# Commands that read a model, a training, or a file named {}; the keys are the files that are damaged.
READ_MODEL = (
    "top -m {} the",
    "generate -n 3 -m {} 'the cat'",
    "generate -n 3 -m {} --engine native the",
    "generate -n 3 --engine torch --num-beams 2 -m {} the",
    "show {}",
    "show --json {}",
    "tokenize -m {} --merges the",
    "attention -m {} the",
    "lens --json -m {} the",
    "saliency -n 1 -m {} the",
    "neurons -m {} the",
    "edit --zero blocks.0.mlp -m {} the",
    "diff {} other the",
    "eval {} text.txt --characters 200",
    "show --update the {}",
    "finetune {} --data text.txt --steps 1 --batch 2 -o new",
    "finetune {} --data text.txt --lora --steps 1 --batch 2 -o new",
    "convert {} kept",
    "rm -y {}",
)
READ_RUN = (
    "train run",
    "train run --steps 17",
    "show --curve run",
    "show --curve --json run",
    "generate -n 3 -m run the",
    "show run",
)
READ: dict[str, tuple[str, ...]] = {
    "model/*": READ_MODEL,
    "gpt3/*": READ_MODEL,
    "gpt1/*": READ_MODEL,
    "lora/*": READ_MODEL,
    "run/*": READ_RUN,
    "run/checkpoints/*/*": READ_RUN[:2],
    "recipe.toml": (
        "train recipe.toml -o new",
        "finetune model recipe.toml -o new",
        "train --kind gpt3 recipe.toml -o new",
    ),
    "text.txt*": (
        "train recipe.toml -o new --data {}",
        "eval model {}",
        "tokenize --train {} -o new",
        "top -m model -f {}",
        "neurons --examples 1.3 --corpus {} -m model",
    ),
    "tales.jsonl": (
        "finetune model --data {} --steps 1 --batch 2 -o new",
        "eval model {} --field text",
        "neurons --examples 1.3 --corpus {} -m model",
    ),
    "examples.*": ("generate -n 3 -m model --examples {} the",),
    "edits.json": (
        "edit --edit {} -m model 'the cat'",
        "generate -n 3 -m model --edit {} the",
        "edit --edit {} -n 0 --json -m model the",
    ),
    "ckpt.pt": (
        "convert {} ./converted",
        "convert {} ./converted --heads 2 --tokenizer model",
        "top -m {} the",
    ),
}

# Commands that succeed.
READERS = (
    "top -m model 'the cat'",
    "generate -n 5 -m model the",
    "generate -m model --json -n 2 the",
    "tokenize -m model 'the cat'",
    "show model",
    "models",
    "models --json",
    "env",
    "env --json",
    "--help",
    "top --help",
    "--version",
    "attention -m model 'the cat'",
    "lens -m model 'the cat'",
    "neurons -m model 'the cat'",
    "edit --zero blocks.0.mlp -m model -n 2 the",
    "saliency -n 1 -m model the",
    "generate -m model -i",
    "top -m model -i the",
    "show --curve run",
    "eval model text.txt --characters 100",
    "attention -m model -o x.svg 'the cat'",
    "generate -n 3 -m model -f -",
    "diff model other 'the cat'",
)
WRITERS = (
    "train recipe.toml -o new",
    "train run",
    "finetune model --data text.txt --steps 2 --batch 2 --lora -o new",
    "tokenize --train text.txt --vocab-size 270 -o new",
    "convert ckpt.pt kept",
    "edit --zero blocks.0.mlp --save new.json -m model the",
    "lens -m model -o x.html 'the cat'",
)
FAILING = ("genrate", "rm kept")
