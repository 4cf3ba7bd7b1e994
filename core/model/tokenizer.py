"""Prompt to token ids: Qwen2 byte-level BPE with the 26 specials of Qwen and the seven of MiniMax-H3.

The traps: stock Qwen3-VL vocabularies lack the last seven specials, so dialogue between `<d>` and `</d>` is split like
ordinary text without an error; and specials are found before NFC, each piece between them is normalised on its own (a
combining mark after `<d>` must not melt into the `>`). Proof: tests/core/model/test_tokenizer.py against the released
tokenizer files.
"""

import binascii
import re
import unicodedata
from dataclasses import dataclass

import numpy as np
import tiktoken

from core.errors import CheckpointError

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # Qwen2 `tokenizer.json`, pre_tokenizer

QWEN_SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip  # ids 151643..151668, tokenizer_config.json `added_tokens_decoder`
H3_SPECIALS = (
    "<d>", "</d>", "<|cutoff|>", "<|lyrics_start|>", "<|lyrics_end|>", "<|caption_start|>", "<|caption_end|>",
)  # fmt: skip  # ids 151669..151675, appended from `additional_special_tokens`
SPECIALS = QWEN_SPECIALS + H3_SPECIALS

TEXT_TAG = 1  # modality tags of the denoiser: every token of a vision block, its start and end included, is 0
VISION_TAG = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedPrompt:
    """Token ids int32 [rows] and modality tags int32 [rows] (`TEXT_TAG` or `VISION_TAG`), one pair per text row."""

    ids: np.ndarray
    tags: np.ndarray

    @property
    def rows(self) -> int:
        return self.ids.size


def parse_ranks(text: bytes) -> dict[bytes, int]:
    """Ranks of a vocabulary in tiktoken's text form: `base64(token) rank` per line, ranks 0, 1, 2, ... each once."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(filter(None, text.splitlines())):
        try:
            token, rank = line.split()
            ranks[binascii.a2b_base64(token, strict_mode=True)] = int(rank)
        except ValueError as error:  # binascii.Error is one
            raise CheckpointError(f"Vocabulary line {number + 1} is not `base64 rank`.") from error
    if sorted(ranks.values()) != list(range(len(ranks))) or not ranks:
        raise CheckpointError(f"The {len(ranks)} ranks of the vocabulary are not 0 to {len(ranks) - 1}, each once.")
    missing = [byte for byte in range(256) if bytes((byte,)) not in ranks]
    if missing:
        raise CheckpointError(f"The vocabulary lacks {len(missing)} single bytes, the first is 0x{missing[0]:02x}.")
    return ranks


class Tokenizer:
    """Token ids of a vocabulary of ranks; the 33 specials get the ids directly after the last rank.

    ranks: token bytes -> id, as `parse_ranks` gives them (core/weights/vocabulary.py reads the files).
    """

    def __init__(self, ranks: dict[bytes, int]):
        self.special_ids = {token: len(ranks) + index for index, token in enumerate(SPECIALS)}
        self.vocabulary_size = len(ranks) + len(SPECIALS)
        self._encoding = tiktoken.Encoding(
            "h3", pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens=self.special_ids
        )
        self._specials = re.compile("(" + "|".join(map(re.escape, sorted(SPECIALS, key=len, reverse=True))) + ")")

    @staticmethod
    def from_rank_text(text: bytes) -> "Tokenizer":
        """Tokenizer of the contents of a `.tiktoken` file."""
        return Tokenizer(parse_ranks(text))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, specials in it recognised. No chat template, nothing added in front or behind."""
        ids: list[int] = []
        for piece in self._specials.split(text):
            special = self.special_ids.get(piece)
            if special is None:
                ids += self._encoding.encode_ordinary(unicodedata.normalize("NFC", piece))
            else:
                ids.append(special)
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of ids, specials written out; bytes that are not UTF-8 become U+FFFD."""
        return self._encoding.decode(ids)

    def tokenize(self, prompt: str) -> TokenizedPrompt:
        """A prompt as the text encoder gets it for t2va; an empty prompt is one `<|endoftext|>`."""
        ids = self.encode(prompt) or [self.special_ids["<|endoftext|>"]]
        return TokenizedPrompt(
            ids=np.asarray(ids, dtype=np.int32), tags=np.full(len(ids), TEXT_TAG, dtype=np.int32)
        )
