"""Byte-level BPE trained on the captions, written in the rank format of `qwen.tiktoken`.

512 base ranks (256 bytes in GPT-2 order, 256 merges), then Qwen's 26 specials and the seven of H3, in checkpoint
order. The trap: without `MAX_TOKEN_BYTES` whole Chinese clauses become one token (no spaces to split on) and every
attribute combination is a separate word. Proof: `main` compares the trained BPE with tiktoken on fresh captions.
"""

import argparse
import base64
import random
import unicodedata
from pathlib import Path

import tiktoken
import tokenizers

from dev.mini import world
from dev.mini.captions import training_caption

BASE_VOCABULARY = 512
MAX_TOKEN_BYTES = 11
SPLIT = (  # Qwen2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>", "<d>", "</d>", "<|cutoff|>", "<|lyrics_start|>", "<|lyrics_end|>", "<|caption_start|>",
    "<|caption_end|>",
)  # fmt: skip
VOCABULARY = BASE_VOCABULARY + len(SPECIALS)


class CaptionTokenizer:
    """Prompt text to token ids, through tiktoken and the written ranks."""

    def __init__(self, path: Path) -> None:
        ranks = {}
        for line in path.read_text().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        specials = {token: len(ranks) + i for i, token in enumerate(SPECIALS)}
        self._encoding = tiktoken.Encoding("mini", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens=specials)

    def encode(self, text: str) -> list[int]:
        """Ids of a text after NFC; specials written in the text are recognised."""
        return self._encoding.encode(unicodedata.normalize("NFC", text), allowed_special="all")


def train_bpe(seed: int, captions: int) -> tokenizers.Tokenizer:
    """Train the BPE on random captions of all compositions."""
    rng = random.Random(seed)
    everything = world.compositions()
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.normalizer = tokenizers.normalizers.NFC()
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), behavior="isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=BASE_VOCABULARY,
        max_token_length=MAX_TOKEN_BYTES,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((training_caption(rng.choice(everything), rng) for _ in range(captions)), trainer)
    return bpe


def byte_of_character() -> dict[str, int]:
    """The GPT-2 table from printable stand-in characters to bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    hidden = [b for b in range(256) if b not in printable]
    table.update({chr(256 + i): b for i, b in enumerate(hidden)})
    return table


def write_ranks(bpe: tokenizers.Tokenizer, path: Path) -> None:
    """Write `base64(token) rank` lines in rank order."""
    table = byte_of_character()
    by_id = sorted((rank, token) for token, rank in bpe.get_vocab().items())
    lines = [f"{base64.b64encode(bytes(table[c] for c in token)).decode()} {rank}" for rank, token in by_id]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Train, write and compare with tiktoken."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=17)
    arguments = parser.parse_args()
    bpe = train_bpe(arguments.seed, 20000)
    write_ranks(bpe, arguments.out)
    ours = CaptionTokenizer(arguments.out)
    rng = random.Random(arguments.seed + 1)
    texts = [training_caption(rng.choice(world.compositions()), rng) for _ in range(2000)]
    texts += ["Hello, wörld! 123  x\n\n y", "<d>你好</d>", "é"]
    different = [t for t in texts if "<" not in t and bpe.encode(t).ids != ours.encode(t)]
    lengths = [len(ours.encode(t)) for t in texts]
    print(f"{bpe.get_vocab_size()} base tokens; {len(different)} of {len(texts)} texts differ")
    print(f"lengths {min(lengths)}..{max(lengths)}")
    if different or bpe.get_vocab_size() != BASE_VOCABULARY:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
