"""Tags: the special tokens that say to a decoder what is to be done with the text before them.

    I am a student <to-fr> je suis étudiant <|endoftext|>
    the body of an article … <summarize> its lead <|endoftext|>

A vocabulary that has a tag says what its model was trained for: no other file needs to.
"""

import re
from collections.abc import Iterable

from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer

SUMMARIZE = "<summarize>"
LANGUAGE = re.compile(r"<to-(.+)>")


def tag(language: str) -> str:
    """The token that says into which language a text is translated."""
    return f"<to-{language}>"


def languages_of(special: Iterable[str]) -> list[str]:
    """The languages that special tokens name."""
    found = map(LANGUAGE.fullmatch, special)
    return [one[1] for one in found if one is not None]


def purposes_of(tokenizer: Tokenizer | None) -> frozenset[str]:
    """What a decoder with this vocabulary was trained for, beside continuing text."""
    special = {} if tokenizer is None else tokenizer.special
    found = {"translates"} if languages_of(special) else set()
    return frozenset(found | ({"summarizes"} if SUMMARIZE in special else set()))


def tag_for(tokenizer: Tokenizer, to: str | None = None) -> int:
    """The tag of a language, or the only one that there is; what a vocabulary lacks is refused."""
    known = [token for token in tokenizer.special if LANGUAGE.fullmatch(token) or token == SUMMARIZE]
    if not known:
        raise InputError(
            f"the vocabulary has no tag such as {tag('fr')} or {SUMMARIZE}, between a source and its target"
        )
    wanted = tag(to) if to is not None else known[0]
    if wanted not in known:
        raise InputError(f"to: {to!r} is not a language of this vocabulary; its tags are {', '.join(known)}")
    if to is None and len(known) > 1:
        raise InputError(f"to: name the language of the target; the tags are {', '.join(known)}")
    return tokenizer.special[wanted]


def tag_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tags of a vocabulary: they belong before an answer, never into it."""
    special = tokenizer.special
    return frozenset(id for token, id in special.items() if LANGUAGE.fullmatch(token) or token == SUMMARIZE)
