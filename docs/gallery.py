"""Make the gallery: every picture of gallery.md, from the lines that stand beside it.

python docs/gallery.py [FOLDER]
"""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.answers.answer import Answer

FOLDER = Path(__file__).parent
LAW = "A robot must obey the orders given it by human beings."
SENTENCE = "je ne sais pas pourquoi elle est partie"
ANIMAL = "The animal didn't cross the street because it was too tired."


class Picture(NamedTuple):
    """A name, a heading, the lines that make it, and what there is to see."""

    name: str
    title: str
    code: str
    remark: str


PICTURES = [
    Picture(
        "story",
        "A story, and the probability of each token",
        """
out = lm.generate("Once upon a time", max_new_tokens=80, seed=3)
answer = out.probabilities()
""",
        "Every token in the color of its probability before temperature and top-k: the model wavers where a thing is chosen, and not inside a phrase.",
    ),
    Picture(
        "top",
        "What may come next, and what is cut off",
        """
answer = lm.top("Once upon a time, there was a", k=12, top_p=0.6)
""",
        "Below the dashed line is what top-p leaves out before a token is drawn.",
    ),
    Picture(
        "merges",
        "A word becomes tokens",
        """
answer = lm.merges("unbelievable robots")
""",
        "Byte pair encoding, merge by merge: the pair of the lowest rank first.",
    ),
    Picture(
        "embedding",
        "Token + position",
        """
answer = lm.embedding("A robot must")
""",
        "The embedding of each token, that of its position, and the sum, which goes into the first block.",
    ),
    Picture(
        "robot",
        "“robot must obey orders”",
        """
from glassformer.answers import ask

answer = ask("robot")
""",
        "The article's own numbers. Its picture goes from raw scores to percentages in one step; they come out if the scores are "
        "divided by √16 on the way.",
    ),
    Picture(
        "steps",
        "One query, step by step",
        """
out = lm.generate("A robot must obey", max_new_tokens=1, temperature=0)
answer = out.steps(layer=2, head=1, position=3)
""",
        "The same walk in the real model: query, keys and values; then q·k, ÷ √K, mask, softmax, and each value by its weight.",
    ),
    Picture(
        "law",
        "The second law of robotics: which heads attend from “it” to “robot”?",
        f"""
out = lm.generate("{LAW}", max_new_tokens=1, temperature=0)
answer = out.find_heads("it", "robot")
""",
        "In the article a head of GPT-2 gives half of its attention for “it” to “a robot”. Here head 4.4 gives 62 %; the dashed line is "
        "a head that attends alike to all tokens before. That does not "
        "show that it resolves “it”: the next picture has what it does elsewhere.",
    ),
    Picture(
        "law-arcs",
        "Where one of these heads attends",
        f"""
out = lm.generate("{LAW}", max_new_tokens=1, temperature=0)
answer, drawing = out.attention(layer=4, head=4), "arcs"
""",
        "Head 4.4: arrows from every token to those that it attends to most. From 14 of the 15 tokens after “robot” that is “robot”, "
        "not from “it” alone; and without this head (zero ablation) the prediction after “it” hardly changes: a KL divergence of "
        "0.003 nats. A large weight says where a head attends, not what the model uses it for.",
    ),
    Picture(
        "matrix",
        "The same as a table",
        """
out = lm.generate("The dog saw the ball. The dog", max_new_tokens=3, temperature=0)
answer = out.attention(layer=4, head=1)
""",
        "A row attends, a column is attended to; the future is masked.",
    ),
    Picture(
        "heads",
        "All heads at once",
        """
out = lm.generate("The dog saw the ball. The dog", max_new_tokens=3, temperature=0)
answer = out.attention()
""",
        "A layer a row. Each head is labeled with the strongest of four patterns: the previous token, the first one, the same one "
        "earlier, or what followed that (induction). No label: none of them has twice the share of uniform attention over two queries.",
    ),
    Picture(
        "lens",
        "What every layer would predict",
        """
out = lm.generate("Once upon a time, there was a little", max_new_tokens=4, temperature=0)
answer = out.lens()
""",
        "The first rows still predict the token itself; the next one takes shape in the upper half.",
    ),
    Picture(
        "shakespeare",
        "“Shakespeare was born in the year”",
        """
out = lm.generate("Shakespeare was born in the year", max_new_tokens=4, temperature=0)
answer = out.rankings()
""",
        "GPT-2 generates a year. The storyteller knows no dates and goes on as a story does; the table says from which layer on.",
    ),
    Picture(
        "cabinet",
        "“The keys to the cabinet”: is or are?",
        """
out = lm.generate("The keys to the cabinet", max_new_tokens=1, temperature=0)
answer = out.rankings_watch([" was", " were", " is", " are"], position=-2)
""",
        "The subject is “keys”, so “were” and “are” would be right. The storyteller ranks “was” first, which agrees with “cabinet”.",
    ),
    Picture(
        "saliency",
        "Why this word",
        """
out = lm.generate("The little dog was very", max_new_tokens=3, temperature=0)
answer = out.saliency()
""",
        "Gradient × input for three tokens, each with its test: how its probability, ÷ the full one, falls when what is called "
        "important is deleted, and how it rises when that is inserted again. A good explanation has a smaller area than random order in deletion and "
        "a larger one in insertion; of “angry” it has not.",
    ),
    Picture(
        "counting",
        "Counting: “1, 2, 3,”",
        """
out = lm.generate("1, 2, 3,", max_new_tokens=3, temperature=0)
answer = out.saliency(tested=False)
""",
        "GPT-2 counts on. The storyteller has hardly seen numbers and does not.",
    ),
    Picture(
        "countries",
        "A list of countries",
        """
out = lm.generate("1. Austria\\n2. Belgium\\n3. Bulgaria\\n4.", max_new_tokens=6, temperature=0)
answer = out.neurons().factors(4)
""",
        "Factors of the neurons over the article's list: the pieces of names, the numbers with their dots, the ends of lines.",
    ),
    Picture(
        "xml",
        "XML",
        """
out = lm.generate("<user><name>Barack</name><dob>1961</dob>", max_new_tokens=6, temperature=0)
answer = out.neurons().factors(4)
""",
        "The storyteller has seen no XML; the factors separate brackets from what is between them.",
    ),
    Picture(
        "neurons",
        "Neurons",
        """
out = lm.generate("The little girl and the big dog ran", max_new_tokens=3, temperature=0)
answer = out.neurons(k=2)
""",
        "The strongest at each token, over all tokens.",
    ),
    Picture(
        "alignment",
        "A translation, and where the decoder looked",
        f"""
out = gf.load("translator").translate("{ANIMAL}")
answer = out.alignment()
""",
        "Attention from each written token to the source, the mean of all heads, and below it saliency: which source tokens the written one depends "
        "on. *n' … pas* looks at *didn't*, and what stands for *it* at *it*. The two agree by half, and the picture says so.",
    ),
    Picture(
        "decoder-alignment",
        "The same sentence by a decoder alone",
        f"""
decoder = gf.load("translator-decoder")
out = decoder.translate("{ANIMAL}", to="fr")
answer = out.alignment()
""",
        "There is no cross-attention: the source is a part of the text, and this is the corner of the decoder's own attention in which the target's rows "
        "meet the source's columns.",
    ),
    Picture(
        "it",
        "What does “it” look at?",
        f"""
out = gf.load("translator").translate("{ANIMAL}")
answer = out.find_heads("it", "animal", stack="encoder")
""",
        "In the article a head of a larger Transformer links *it* to *animal*. No head of this one does: the strongest gives less than it would by "
        "attending to all tokens alike.",
    ),
    Picture(
        "beams",
        "Beam search",
        """
answer = gf.load("translator").translate("I am a student.").beams(num_beams=2)
""",
        "Two hypotheses are kept in every step. The best one ends first; the search goes on while another could still win.",
    ),
    Picture(
        "targets",
        "Targets and predictions",
        """
out = gf.load("translator").translate("je suis étudiant")
answer = out.targets("I am a student", also=["thanks"])
""",
        "The article's sentence and its vocabulary of six: what training wants, what an untrained model predicts, and what the trained one does. "
        "The shares are those among these six tokens; *thanks* has two here, and the first stands for it.",
    ),
    Picture(
        "journey",
        "One word through encoder and decoder",
        """
answer = gf.load("translator").translate("I am a student.").journey(2)
""",
        "From “student” up to “étudiant”: what each half of a block adds, where it attends most, and what the decoder would write there. "
        "Up to the last feed-forward layer it would have gone on with *un*, as English does.",
    ),
    Picture(
        "unroll",
        "A recurrent network reads, then writes",
        """
answer = gf.load("seq2seq").translate("je suis étudiant").unroll()
""",
        "A state of the encoder after every token; then, for every token that is written, how much of each of these states it takes, the "
        "decoder's own state, and the context vector that the weights add up to.",
    ),
    Picture(
        "rnn-alignment",
        "Attention of a recurrent network",
        f"""
out = gf.load("seq2seq").translate("{SENTENCE}")
answer = out.alignment()
""",
        "The picture of the papers, from a model of 3.4 MB. *ne … pas* becomes *don't*, and *est partie* is one word in English.",
    ),
    Picture(
        "bottleneck",
        "The same sentence through one vector",
        f"""
out = gf.load("seq2seq-bottleneck").translate("{SENTENCE}")
answer = out.saliency(tested=False)
""",
        "Its twin without attention gets nothing but the encoder's last state. Saliency has to say what attention said above, and says less: "
        "*pourquoi* stands out for nearly every word, and a word hardly depends more on its own source than on the others.",
    ),
    Picture(
        "chorale",
        "A chorale by the composer",
        """
answer = gf.load("composer").compose(seconds=24, seed=1).roll()
""",
        "Four voices as it wrote them, the first bars of a piece.",
    ),
    Picture(
        "contour",
        "A late peak hears the earlier ones",
        """
chords = [(67, 62, 59, 43), (69, 64, 60, 45), (72, 64, 57, 45), (71, 62, 55, 43)]
chords += [(69, 62, 54, 50), (67, 62, 59, 43), (66, 62, 57, 50), (67, 62, 59, 43)]  # quarters of a phrase
composer = gf.load("composer")
steps = [list(chord) for chord in chords for _ in range(4)]
piece = composer.hear(composer.events.lay(3 * steps))
answer = piece.arcs(53, layer=2)
""",
        "A phrase of two bars comes three times. From its last peak, head 2 gives 20 % to the peak of the second time, and most to the alto below; "
        "the color of an arc is its head, the width its weight. *The Illustrated GPT-2* ends with such a picture.",
    ),
    Picture(
        "shapes",
        "Four shapes of recurrent networks",
        """
from glassformer.tasks.shapes import shapes

answer = shapes()
""",
        "One to many, many to one, many to many in step, and with encoder and decoder: counted in runs of real networks.",
    ),
    Picture(
        "positions",
        "Sinusoids",
        """
from glassformer.answers import ask

answer = ask("positions")
""",
        "A row a position, in both published layouts: sine and cosine in turn as in the paper, or all sines first, as the article draws them.",
    ),
    Picture(
        "residual",
        "One vector through the layers",
        """
out = lm.generate("Once upon a", max_new_tokens=1, temperature=0)
answer = out.residual(position=2)
""",
        "Its norm, what each half of a block added, the cosine with the stage before (the embedding has none), and what it would predict.",
    ),
    Picture(
        "attribution",
        "Which parts raise a logit",
        """
out = lm.generate("Once upon a", max_new_tokens=1, temperature=0)
answer = out.attribution(0)
""",
        "Direct logit attribution: the logit of the next token is the sum of what embedding, heads and feed-forward layers add.",
    ),
    Picture(
        "cache",
        "The KV cache at work",
        """
out = lm.generate("Once upon a time", max_new_tokens=6, temperature=0)
answer = out.cache()
""",
        "Solid keys and values are reused, outlined ones are computed: after the prompt, one column a step.",
    ),
    Picture(
        "sweep",
        "Which places carry “girl”",
        """
answer = lm.sweep("The girl lost", "The boy lost", answer=" her", foil=" his")
""",
        "Activation patching: one place at a time is taken from the first text into the second. How much of the logit difference is restored?",
    ),
    Picture(
        "edit",
        "Without the attention of the first layer",
        """
from glassformer.answers import ask
from glassformer.answers.answer import Text

text = Text(lm, lm.encode("Once upon a"))
answer = ask("edit", text, edits=[{"site": "blocks.0.attn", "do": "zero"}], k=5, max_new_tokens=8)
""",
        "Zero ablation: the next token before and after.",
    ),
    Picture(
        "diff",
        "What bfloat16 costs",
        """
other = gf.load("storyteller", dtype="bfloat16")
answer = lm.diff(other, "Once upon a time, there was a little dog named Tim. He")
""",
        "Two models on one text: here the same one with shorter numbers; a fine-tuned one is put in the same place.",
    ),
    Picture(
        "training-rows",
        "What training sees of a sentence",
        f"""
answer = lm.training_rows("{LAW}", window=6)
""",
        "Every token is once the label (marked) of the tokens before it, its features; the window slides over the text.",
    ),
    Picture(
        "pair-rows",
        "What training sees of a pair",
        """
pairs = [("I am a student", "je suis étudiant"), ("Good morning.", "Bonjour.")]
answer = gf.load("translator-decoder").pair_rows(pairs, to="fr")
""",
        "A decoder alone learns to translate: source, tag and target are one sequence. Only what stands behind the tag is a label.",
    ),
    Picture(
        "update",
        "One update",
        """
answer = lm.update("The dog saw the ball. The cat")
""",
        "Predict, compare with the token that came, change every weight a little against the gradient, predict again. "
        "The numbers are real; the step is made on a copy.",
    ),
    Picture(
        "parameters",
        "Where the parameters are",
        """
from glassformer.answers import ask
from glassformer.tasks import library

answer = ask("parameters", library.describe("storyteller"))
""",
        "Counted from the file.",
    ),
    Picture(
        "curve",
        "A training",
        """
from glassformer.answers import ask

answer = ask("curve", [Path(f"recipes/storyteller-{n}.jsonl") for n in (1, 2, 3)])
""",
        "The storyteller's own, in three parts (see recipes/LOG.md). The step at 13 million tokens is a change of texts: more stories, "
        "and a falling learning rate. The spike at 22 million is where the context grew from 256 to 512 tokens, and nothing had been "
        "learned of the new positions. The held-out text is always the same and of another mix than the training text, so "
        "the distance between the lines is not overfitting alone.",
    ),
]


def main(folder: Path = FOLDER) -> None:
    """Draw all pictures, light and dark, and write the page."""
    import glassformer as gf

    (folder / "gallery").mkdir(exist_ok=True)
    lm = gf.load("storyteller")
    page = [HEAD]
    for one in PICTURES:
        known: dict[str, Any] = {"gf": gf, "lm": lm, "Path": Path}
        exec(one.code, known)
        answer: Answer = known["answer"]
        drawing = known.get("drawing")
        for theme, suffix in (("light", ""), ("dark", "-dark")):
            answer.save(
                folder / "gallery" / f"{one.name}{suffix}.svg", drawing=drawing, theme=theme, width=860
            )
        code = f"```python{one.code}{SAVED if drawing else SAVE}\n```\n"
        page += [f"## {one.title}\n", one.remark + "\n", code, picture(one.name, one.title)]
        print(one.name, file=sys.stderr)
    (folder / "gallery.md").write_text("\n".join(page), encoding="utf-8")


SAVE = 'answer.save("picture.svg")'
SAVED = 'answer.save("picture.svg", drawing=drawing)'
HEAD = """# Gallery

Every picture here was made by `python docs/gallery.py` from the lines beside it and the models that ship, after

```python
from pathlib import Path

import glassformer as gf

lm = gf.load("storyteller")
```

The storyteller is small and has read stories for children. Where an article shows what GPT-2 knows, this shows what the
storyteller does. `.svg` is one of the forms: `.png`, `.pdf`, `.html` (live, in one file), `.csv` and `.json` are others.
"""


def picture(name: str, title: str) -> str:
    """In the reader's colors."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="gallery/{name}-dark.svg">'
    return f'<picture>{dark}<img src="gallery/{name}.svg" alt="{title}"></picture>\n'


if __name__ == "__main__":
    os.chdir(FOLDER.parent)
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
