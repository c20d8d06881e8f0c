"""The model's vocabulary: text to ids through `tokenizers`, ids to bytes here.

Bytes are what streams can be cut from: the text of a token alone may be half a character.
"""

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from inferlet.errors import with_hint

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


BYTE_ALPHABET = _byte_level_alphabet()


class Vocabulary:
    """Tokenizer, special tokens and chat template of one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: dict[str, Any] | None = None,
        template: str = "",
        end_ids: tuple[int, ...] = (),
    ) -> None:
        """`config`: tokenizer_config.json. `end_ids`: the ids that end a generation."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.config = config or {}
        self.template = template
        self.end_ids = end_ids
        added = tokenizer.get_added_tokens_decoder()
        self.added = {number: token.content for number, token in added.items()}
        self.special = frozenset(number for number, token in added.items() if token.special)
        decoder = tokenizer.decoder
        self._is_byte_level = decoder is not None and b'"ByteLevel"' in decoder.__getstate__()
        self._bytes: dict[int, bytes] = {}
        self.chat_format: Any = None  # what `formats.of` found for the template
        self.toolbox: Any = None  # what `tools` made of it

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """From a model's folder, in the layout of Hugging Face."""
        config = _read_json(folder / "tokenizer_config.json")
        template_file = folder / "chat_template.jinja"
        template = template_file.read_text("utf-8") if template_file.exists() else ""
        # That of a model with a processor of images is in a file of the processor's.
        template = (
            template
            or _template_of(config)
            or _template_of(_read_json(folder / "chat_template.json"))
        )
        end = _read_json(folder / "generation_config.json").get("eos_token_id") or []
        return cls(
            Tokenizer.from_file(str(folder / "tokenizer.json")),
            config,
            template,
            tuple(end) if isinstance(end, list) else (end,),
        )

    def encode(self, text: str) -> list[int]:
        """No BOS or EOS; spellings of special tokens become these tokens."""
        try:
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError:
            check_text(text)
            raise

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes of one id; None when it has no spelling."""
        found = self._bytes.get(token)
        if found is None:
            found = self._spell(token)
            if found is not None:
                self._bytes[token] = found
        return found

    def token_id(self, spelling: str | None) -> int | None:
        return self.tokenizer.token_to_id(spelling) if spelling else None

    def named_token(self, name: str) -> str | None:
        """Spelling of `bos_token`, `eos_token`, …"""
        token = self.config.get(name)
        return token.get("content") if isinstance(token, dict) else token

    def start_ids(self) -> list[int]:
        """`[bos]` when the model starts sequences with one, else `[]`."""
        bos = self.token_id(self.named_token("bos_token"))
        if bos is None:
            return []
        starts = self.tokenizer.encode("", add_special_tokens=True).ids[:1] == [bos]
        return [bos] if starts or self.config.get("add_bos_token") else []

    def _spell(self, token: int) -> bytes | None:
        spelling = self.added.get(token)
        # Not special: a run of spaces, say, that is found before a text is cut into words.
        if spelling is not None and (token in self.special or self._is_byte_level):
            return spelling.encode()
        if spelling is None:
            spelling = self.tokenizer.id_to_token(token) if 0 <= token < 1 << 32 else None
        if spelling is None:
            return None
        if self._is_byte_level and all(character in BYTE_ALPHABET for character in spelling):
            return bytes(BYTE_ALPHABET[character] for character in spelling)
        byte = _BYTE_TOKEN.fullmatch(spelling)
        if byte:
            return bytes.fromhex(byte[1])
        return spelling.replace("\u2581", " ").encode()


def check_text(text: str) -> None:
    """ValueError for half a character, which JSON and Python know and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"character {error.start} of the text is half of one: {text[error.start]!r}"
        hint = "replace it: `text.encode('utf-8', 'replace').decode()`"
        raise ValueError(with_hint(message, hint)) from None


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _template_of(config: dict[str, Any]) -> str:
    template = config.get("chat_template") or ""
    if isinstance(template, list):  # several, by name
        by_name = {entry["name"]: entry["template"] for entry in template}
        template = by_name.get("default", "")
    return template
