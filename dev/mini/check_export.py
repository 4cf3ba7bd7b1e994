"""Load `assets/mini/` back through the official importer and the unmodified classes, and compare with the training run.

What green proves: names, row orders and configurations; every component computes what was trained, up to storage
rounding. Without `--runs` it proves only that the files load and compute finite values. One JSON line last; exit 1 on
any failure.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from diffusers.loaders.single_file_utils import convert_minimax_h3_transformer_checkpoint_to_diffusers
from safetensors import safe_open
from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

from dev.mini import model
from dev.mini.score import Pipeline
from dev.mini.tokenizer import SPECIALS, CaptionTokenizer

LIMIT = {
    "transformer": 3e-2,
    "text": 2e-2,
    "video_decode": 2e-3,
    "video_encode": 1e-5,
    "audio_decode": 1e-4,
    "audio_encode": 1e-4,
}
SIZE_LIMIT_BYTES = 40_000_000
PROMPTS = ("a red circle moves right on a navy background, low tone", "黑色背景上，一个红色的圆形向右移动，低音。")


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}, file.metadata()


def load_denoiser(path: Path) -> MiniMaxH3Transformer3DModel:
    """Denoiser through the official importer, float32."""
    tensors, metadata = read(path)
    c = json.loads(metadata["config"])
    if metadata["qkv_order"] != "thirds" or metadata["partition"] != "fl2va":
        raise ValueError(f"unexpected metadata {metadata}")
    config = {
        "num_attention_heads": c["num_attention_heads"], "attention_head_dim": c["attention_head_dim"],
        "hidden_size": c["hidden_size"], "num_layers": c["num_layers"],
        "num_refiner_layers": c["token_refiner_num_layers"], "ffn_dim": c["ffn_hidden_size"],
        "in_channels": c["latents_dim"], "audio_in_channels": c["audio_latents_dim"],
        "patch_size": tuple(c["patch_size"]), "text_dim": c["text_dim"], "freq_dim": c["timestep_input_dim"],
        "time_embed_hidden_dim": c["time_embed_hidden_size"], "time_embed_dim": c["time_embed_dim"],
        "rope_freq_dim": c["rope_inv_freq_len"], "rope_theta": c["rope_theta"], "norm_eps": c["norm_eps"],
        "qk_norm_eps": c["qk_norm_eps"], "final_norm_eps": c["final_norm_eps"],
    }  # fmt: skip
    denoiser = MiniMaxH3Transformer3DModel(**config).eval()
    if not torch.equal(tensors["rope.inv_freq"], denoiser.rope.inv_freq):
        raise ValueError("rope.inv_freq differs from the class")
    converted = convert_minimax_h3_transformer_checkpoint_to_diffusers(tensors, config, qkv_layout="stacked")
    denoiser.load_state_dict({n: w.float() for n, w in converted.items()})
    return denoiser


def load_text(path: Path) -> Qwen3VLTextModel:
    """Text stack, float32, without final norm."""
    tensors, metadata = read(path)
    c = json.loads(metadata["config"])
    rope = {"rope_type": "default", "rope_theta": c.pop("rope_theta"), "mrope_section": c.pop("mrope_section")}
    text = Qwen3VLTextModel(Qwen3VLTextConfig(**c, rope_parameters=rope, use_cache=False)).eval()
    text.norm = torch.nn.Identity()
    text.load_state_dict({n.removeprefix("model."): w.float() for n, w in tensors.items()})
    return text


def _thirds(weight: torch.Tensor, heads: int) -> list[torch.Tensor]:
    return [part.flatten(0, 1) for part in weight.unflatten(0, (heads, 3, -1)).unbind(1)]


def load_video(path: Path) -> AutoencoderKLMiniMaxH3:
    """Video VAE from released names, float32."""
    tensors, metadata = read(path)
    config = json.loads(metadata["config"])
    mean, std = tensors.pop("latents_mean"), tensors.pop("latents_std")
    if tensors.pop("decoder.mask_token").abs().max() != 0:
        raise ValueError("mask_token is not zero")
    state = {}
    for name, weight in tensors.items():
        target = name.replace("decoder.x_embedder", "decoder.proj_in").replace("encoder.down.", "encoder.down_blocks.")
        target = target.replace(".block.", ".resnets.").replace(".nin_shortcut.", ".conv_shortcut.")
        target = target.replace(".downsample.", ".downsamplers.0.").replace("attn.to_out.", "attn.to_out.0.")
        target = target.replace("ff.w2.", "ff.net.2.")
        weight = weight.float()
        if "to_qkv" in target:
            for part, value in zip(
                ("to_q", "to_k", "to_v"), _thirds(weight, config["decoder_num_attention_heads"]), strict=True
            ):
                state[target.replace("to_qkv", part)] = value
        elif "ff.w1." in target:
            gate, value = weight.chunk(2)
            state[target.replace("ff.w1.", "ff.net.0.proj.")] = torch.cat([value, gate])
        else:
            state[target] = weight
    vae = AutoencoderKLMiniMaxH3(**config, latents_mean=mean.tolist(), latents_std=std.tolist()).eval()
    vae.load_state_dict(state)
    return vae


def load_audio(path: Path) -> AutoencoderKLMiniMaxH3Audio:
    """Audio VAE from folded weights: direction = weight, gain = its norm."""
    tensors, metadata = read(path)
    vae = AutoencoderKLMiniMaxH3Audio(**json.loads(metadata["config"])).eval()
    state = {}
    for name in vae.state_dict():
        if name.endswith("weight_v"):
            state[name] = tensors[name[:-2]]
        elif name.endswith("weight_g"):
            folded = tensors[name[:-2]]
            state[name] = folded.flatten(1).norm(dim=1).view(-1, 1, 1)
        else:
            state[name] = tensors[name]
    vae.load_state_dict(state)
    return vae


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Relative L2 difference; infinite when anything is not finite."""
    if not bool(torch.isfinite(ours).all()):
        return float("inf")
    return float((ours - theirs).norm() / theirs.norm())


@torch.no_grad()
def probe(denoiser: torch.nn.Module, text: torch.nn.Module, tokenizer: CaptionTokenizer, vaes: tuple) -> dict:
    """One forward of every component on fixed inputs."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.tensor([tokenizer.encode(PROMPTS[0])])
    words = text(ids).last_hidden_state
    place = model.layout(ids.shape[1], 37, 7, 8, 8)
    video, audio = torch.randn(1, 112, 96, generator=generator), torch.randn(1, 74, 32, generator=generator)
    fixed = torch.randn(1, ids.shape[1], words.shape[-1], generator=generator)
    tags = torch.tensor([1] * place.text + [2] * place.audio + [0] * place.video)
    rows = torch.arange(len(tags))
    out = denoiser(
        video, audio, fixed, torch.tensor([0.3, 0.6]), (tags == 2).long(), tags, place.positions,
        rows[tags == 0], rows[tags == 2], rows[tags == 1],
    )  # fmt: skip
    video_vae, audio_vae = vaes
    frames = torch.randn(1, 3, 22, 64, 96, generator=generator)
    sound = 0.1 * torch.randn(2, 1, 8000, generator=generator)
    return {
        "transformer": torch.cat([out.sample.flatten(), out.audio_sample.flatten()]), "text": words,
        "video_decode": video_vae.decode(torch.randn(1, 24, 12, 4, 6, generator=generator)).sample,
        "video_encode": video_vae.encode(frames).latent_dist.mode(),
        "audio_decode": audio_vae.decode(torch.rand(2, 32, 12, generator=generator)).sample,
        "audio_encode": audio_vae.encode(sound).latent_dist.mode(),
    }  # fmt: skip


def main() -> None:
    """`python -m dev.mini.check_export --assets assets/mini [--runs FOLDER]`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--assets", type=Path, default=Path("assets/mini"))
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--weights", choices=("weights", "average"), default="average")
    parser.add_argument("--checkpoint", default="last.pt")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    assets = arguments.assets
    tokenizer = CaptionTokenizer(assets / "vocabulary.tiktoken")
    vaes = load_video(assets / "video_vae.safetensors"), load_audio(assets / "audio_vae.safetensors")
    loaded = load_denoiser(assets / "transformer.safetensors"), load_text(assets / "text_encoder.safetensors")
    ours = probe(*loaded, tokenizer, vaes)
    size = sum(path.stat().st_size for path in assets.iterdir())
    failures = [name for name, value in ours.items() if not bool(torch.isfinite(value).all())]
    if size > SIZE_LIMIT_BYTES:
        failures.append("size")
    rows = loaded[1].embed_tokens.num_embeddings
    if tokenizer.encode(SPECIALS[-1]) != [rows - 1]:
        failures.append("specials")
    report: dict = {"bytes": size, "vocabulary": rows}
    if arguments.runs:
        run = Pipeline(arguments.runs, arguments.weights, arguments.checkpoint)
        theirs = probe(run.denoiser, run.text, tokenizer, (run.video_vae, run.audio_vae))
        report["relative"] = {name: float(f"{relative(ours[name], theirs[name]):.2e}") for name in ours}
        failures += [name for name, value in report["relative"].items() if not value <= LIMIT[name]]
    print(json.dumps(report | {"failures": failures}))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
