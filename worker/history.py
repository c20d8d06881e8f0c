"""What one sequence holds, as far as it is plain: token ids, and the keys of its full pages.

A key names a page's tokens and everything before them: equal keys, equal content. Rows are plain
when a cached page may stand for them (text placed by folding geometry, nothing else at work).

    tokens:  0 ..... start ..... known to the host ......... length of the set: all rows plain
             |forgotten| keys[0] | keys[1] | …  one for each full page whose tokens have been read

Pages that have gone to a trunk are forgotten but for the last key. Nothing goes back beyond them:
should it happen all the same, the sequence is not plain any more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b

KEY_BYTES = 16


class Unread:
    """A token id that is still on the device; `id` is set when the host has read it."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id: int | None = None


def root_key(salt: str) -> bytes:
    """What the first page's key continues: only equal salts share pages."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def page_key(parent: bytes, tokens: array) -> bytes:
    return blake2b(parent + tokens.tobytes(), digest_size=KEY_BYTES).digest()


class History:
    __slots__ = ("page_size", "root", "start", "start_key", "tokens", "keys", "unread")

    def __init__(self, page_size: int, root: bytes) -> None:
        self.page_size = page_size
        self.root = root
        self.start = 0  # a page's first token; -1: nothing is known
        self.start_key = root  # of the page before it
        self.tokens = array("i")  # from there on
        self.keys: list[bytes] = []
        self.unread: dict[int, Unread] = {}  # by place in `tokens`, in rising order

    @property
    def length(self) -> int:
        """Leading rows that are plain; never that of a set when nothing is known."""
        return self.start + len(self.tokens)

    @property
    def num_keyed(self) -> int:
        """Leading pages whose keys are or were known."""
        return self.start // self.page_size + len(self.keys)

    def copy(self) -> History:
        twin = History(self.page_size, self.root)
        twin.start, twin.start_key = self.start, self.start_key
        twin.tokens, twin.keys, twin.unread = self.tokens[:], self.keys[:], dict(self.unread)
        return twin

    def add_unread(self, tokens: Sequence[Unread]) -> None:
        for token in tokens:
            self.unread[len(self.tokens)] = token
            self.tokens.append(0)

    def truncate(self, length: int) -> None:
        if length == 0:
            self.start, self.start_key, kept = 0, self.root, 0
        elif length < self.start:
            self.start, kept = -1, 0
        else:
            kept = length - self.start
        if kept < len(self.tokens):
            del self.tokens[kept:]
            del self.keys[kept // self.page_size :]
            for place in [place for place in self.unread if place >= kept]:
                del self.unread[place]

    def forget_pages(self, end: int) -> list[bytes]:
        """The keys of the pages before `end`; neither they nor their tokens are kept here any more."""
        count = max(min(end - self.start // self.page_size, len(self.keys)), 0)
        keys, rows = self.keys[:count], count * self.page_size
        if count:
            self.start, self.start_key = self.start + rows, keys[-1]
            del self.tokens[:rows], self.keys[:count]
            self.unread = {place - rows: token for place, token in self.unread.items()}
        return keys

    def new_keys(self) -> Iterator[tuple[int, bytes]]:
        """(page index, key) of pages that have become full, and whose tokens are known."""
        size, known = self.page_size, self._known()
        while (start := len(self.keys) * size) + size <= known:
            key = page_key(self._last_key, self.tokens[start : start + size])
            self.keys.append(key)
            yield self.num_keyed - 1, key

    def keys_with(self, tokens: Sequence[int]) -> list[bytes]:
        """Keys of the pages that `tokens`, appended, would make full; none when some token before
        them is not known."""
        if self._known() < len(self.tokens):
            return []
        size, start = self.page_size, len(self.keys) * self.page_size
        joined = self.tokens[start:]
        joined.extend(tokens)
        keys, key = [], self._last_key
        for at in range(0, len(joined) - size + 1, size):
            key = page_key(key, joined[at : at + size])
            keys.append(key)
        return keys

    @property
    def _last_key(self) -> bytes:
        return self.keys[-1] if self.keys else self.start_key

    def _known(self) -> int:
        """How many leading ones of `tokens` are known."""
        for place, token in list(self.unread.items()):
            if token.id is None:
                return place
            self.tokens[place] = token.id
            del self.unread[place]
        return len(self.tokens)
