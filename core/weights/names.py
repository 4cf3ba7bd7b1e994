"""Published tensor names and row orders, mapped to the canonical ones: the names of the original files.

One table per component: a published name, its canonical name, and what happens to the rows. `#` stands for a number,
`*` for the rest of a name. Canonical orders are `[q; k; v]` and `[gate; value]`.

The trap: the query, key and value rows of the original denoiser shards are interleaved per head, those of every
repack stand in thirds, under the same name and shape. Nothing in the tensor tells; core/weights/provenance.py decides.
Proof: tests/core/weights/test_names.py, every layout written from the same weights.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Rows(Enum):
    """How the stored rows become the canonical ones."""

    AS_STORED = "as stored"  # several parts are stacked in order
    QKV = "qkv"  # thirds or [q k v] head by head, as the provenance of the file says
    SWAPPED = "swapped"  # [value; gate]
    WEIGHT_NORM = "weight norm"  # part 0 is g, part 1 is v


@dataclass(frozen=True, slots=True)
class Rule:
    """`published` becomes `canonical`, or part number `part` of the `parts` stored tensors that make it up."""

    published: str
    canonical: str
    rows: Rows = Rows.AS_STORED
    part: int = 0
    parts: int = 1


def _same(*names: str) -> tuple[Rule, ...]:
    return tuple(Rule(name, name) for name in names)


def _split_qkv(published: str, canonical: str, leaf: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(f"{published}.to_{part}.{leaf}", f"{canonical}.{leaf}", part=index, parts=3)
        for index, part in enumerate("qkv")
    )


PREFIXES = ("model.diffusion_model.", "diffusion_model.")  # removed before any rule is tried


def _diffusers_block(published: str, canonical: str) -> tuple[Rule, ...]:
    """One denoiser or refiner block in diffusers names."""
    return (
        *_split_qkv(f"{published}.attn", f"{canonical}.attn.qkv_proj", "weight"),
        Rule(f"{published}.attn.norm_q.weight", f"{canonical}.attn.q_norm.weight"),
        Rule(f"{published}.attn.norm_k.weight", f"{canonical}.attn.k_norm.weight"),
        Rule(f"{published}.attn.to_out.0.weight", f"{canonical}.attn.out_proj.weight"),
        Rule(f"{published}.ff.net.0.proj.weight", f"{canonical}.mlp.fc1.weight", Rows.SWAPPED),
        Rule(f"{published}.ff.net.2.weight", f"{canonical}.mlp.fc2.weight"),
        Rule(f"{published}.*", f"{canonical}.*"),
    )


DENOISER = (
    *_diffusers_block("transformer_blocks.#", "blocks.#"),
    *_diffusers_block("token_refiner.refiner_blocks.#", "token_refiner.blocks.#"),
    Rule("proj_in.*", "video_patch_proj.*"),
    Rule("audio_proj_in.*", "audio_patch_proj.*"),
    Rule("context_embedder.*", "condition_proj.*"),
    Rule("time_embedder.linear_1.*", "time_embedder.proj_in.*"),
    Rule("time_embedder.linear_2.*", "time_embedder.proj_out.*"),
    Rule("norm_out.norm.weight", "final_layer.norm.weight"),
    Rule("norm_out.linear.*", "final_layer.adaln_proj.linear.*"),
    Rule("proj_out.*", "final_layer.video_out.*"),
    Rule("audio_proj_out.*", "final_layer.audio_out.*"),
    Rule("blocks.#.attn.qkv_proj.weight", "blocks.#.attn.qkv_proj.weight", Rows.QKV),
    Rule("token_refiner.blocks.#.attn.qkv_proj.weight", "token_refiner.blocks.#.attn.qkv_proj.weight", Rows.QKV),
    *_same(
        "blocks.#.*", "token_refiner.*", "video_patch_proj.*", "audio_patch_proj.*", "condition_proj.*",
        "time_embedder.*", "adaln_t_table", "rope.inv_freq", "final_layer.*",
    ),
)  # fmt: skip

_LLAMA_CPP = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
TEXT_ENCODER = (
    *(
        Rule(f"{prefix}{name}", name)
        for prefix in ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
        for name in ("layers.#.*", "embed_tokens.weight")
    ),
    *(Rule(f"blk.#.{theirs}.weight", f"layers.#.{ours}.weight") for theirs, ours in _LLAMA_CPP.items()),
    Rule("token_embd.weight", "embed_tokens.weight"),
)

_VIT = "decoder.transformer_blocks.#"
VIDEO_VAE = (
    *(rule for leaf in ("weight", "bias") for rule in _split_qkv(f"{_VIT}.attn", f"{_VIT}.attn.to_qkv", leaf)),
    *(Rule(f"{_VIT}.attn.to_out.0.{leaf}", f"{_VIT}.attn.to_out.{leaf}") for leaf in ("weight", "bias")),
    *(Rule(f"{_VIT}.ff.net.0.proj.{leaf}", f"{_VIT}.ff.w1.{leaf}", Rows.SWAPPED) for leaf in ("weight", "bias")),
    *(Rule(f"{_VIT}.ff.net.2.{leaf}", f"{_VIT}.ff.w2.{leaf}") for leaf in ("weight", "bias")),
    *(Rule(f"{_VIT}.attn.to_qkv.{leaf}", f"{_VIT}.attn.to_qkv.{leaf}", Rows.QKV) for leaf in ("weight", "bias")),
    Rule("decoder.proj_in.*", "decoder.x_embedder.*"),
    Rule("encoder.down_blocks.#.resnets.#.conv_shortcut.*", "encoder.down.#.block.#.nin_shortcut.*"),
    Rule("encoder.down_blocks.#.resnets.#.*", "encoder.down.#.block.#.*"),
    Rule("encoder.down_blocks.#.downsamplers.0.conv.*", "encoder.down.#.downsample.conv.*"),
    *_same("encoder.*", "quant_conv.*", "post_quant_conv.*", "decoder.*", "latents_mean", "latents_std"),
)

AUDIO_VAE = (
    Rule("*.weight_g", "*.weight", Rows.WEIGHT_NORM, part=0, parts=2),
    Rule("*.weight_v", "*.weight", Rows.WEIGHT_NORM, part=1, parts=2),
    Rule("*.parametrizations.weight.original0", "*.weight", Rows.WEIGHT_NORM, part=0, parts=2),
    Rule("*.parametrizations.weight.original1", "*.weight", Rows.WEIGHT_NORM, part=1, parts=2),
    *_same(
        "encoder.*", "pre_block.*", "mean_proj.*", "logs_proj.*", "dec_in_proj.*", "decoder.*", "latents_mean",
        "latents_std",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NameTable:
    """Compiled rules of one component; the first that matches a name wins."""

    rules: tuple[tuple[re.Pattern, str, Rule], ...]

    @staticmethod
    def compile(rules: tuple[Rule, ...]) -> "NameTable":
        return NameTable(tuple((_pattern(rule.published), _replacement(rule.canonical), rule) for rule in rules))

    def canonical(self, published: str) -> tuple[str, Rule] | None:
        """(canonical name, rule) of a published name without prefix, or None when no rule knows it."""
        for pattern, replacement, rule in self.rules:
            match = pattern.fullmatch(published)
            if match:
                return match.expand(replacement), rule
        return None


def _pattern(published: str) -> re.Pattern:
    return re.compile(re.escape(published).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)"))


def _replacement(canonical: str) -> str:
    groups = iter(range(1, 10))
    return re.sub(r"[#*]", lambda _: rf"\g<{next(groups)}>", canonical)


def without_prefix(name: str) -> str:
    """A name without the prefix that some packagings put in front of every name."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
