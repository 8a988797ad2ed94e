"""Tokens to text as they come: no split character, no stop string, not even the beginning of one."""

import codecs
from collections.abc import Callable, Sequence

from glassformer.errors import InputError


class TextStream:
    """Feed it tokens, get the text that is safe to show; `stopped` once a stop string was met."""

    def __init__(
        self,
        bytes_of: Callable[[int, int | None], bytes],
        stop: Sequence[str] = (),
        *,
        after: int | None = None,
    ) -> None:
        """`bytes_of` is a tokenizer's; `after` is the last token of the prompt, if there is one."""
        if any(not isinstance(s, str) for s in stop):
            raise InputError("stop: a stop string must be text")
        if any(not s for s in stop):
            raise InputError("stop: an empty string would stop everything before it begins")
        self.stop = tuple(stop)
        self.stopped = False
        self._bytes_of = bytes_of
        self._after = after
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # text that may yet turn out to begin a stop string

    def push(self, id: int) -> str:
        """The text that became certain with this token; often a little, sometimes nothing."""
        raw = self._bytes_of(id, self._after)
        self._after = id
        return self._emit(self._decoder.decode(raw), last=False)

    def finish(self) -> str:
        """What was held back, now that nothing follows."""
        return self._emit(self._decoder.decode(b"", final=True), last=True)

    def _emit(self, text: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at + len(s), at) for s in self.stop if (at := text.find(s)) >= 0]
        if found:  # the one that is complete first, however the text is cut into tokens
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = 0 if last else max((_overlap(text, s) for s in self.stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
