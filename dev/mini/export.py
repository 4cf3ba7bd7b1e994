"""Write `assets/mini/`: every component under its released name and row order, so that official importers read it.

The traps, all checked by check_export.py: QKV rows are thirds in the denoiser but interleaved per head in the video
decoder; the gate half comes first in both; the audio VAE is stored with weight norm folded; the text stack has no
final norm. The two parts of the VAEs the app calls in float32 stay float32; decoder matrices are float16.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from dev.mini import model
from dev.mini.audio_latents import audio_scale
from dev.mini.audio_vae import AUDIO_VAE
from dev.mini.latents import PIXEL_MEAN, PIXEL_STD, load_basis
from dev.mini.sampler import Schedule
from dev.mini.score import Pipeline
from dev.mini.video_vae import VIDEO_VAE

FLOAT32 = (
    "video_patch_proj",
    "audio_patch_proj",
    "time_embedder",
    "final_layer.video_out",
    "final_layer.audio_out",
    "rope",
)
DENOISER_NAMES = (
    ("token_refiner.refiner_blocks.", "token_refiner.blocks."), ("transformer_blocks.", "blocks."),
    ("time_embedder.linear_1.", "time_embedder.proj_in."), ("time_embedder.linear_2.", "time_embedder.proj_out."),
    ("norm_out.norm.", "final_layer.norm."), ("norm_out.linear.", "final_layer.adaln_proj.linear."),
    ("audio_proj_out.", "final_layer.audio_out."), ("audio_proj_in.", "audio_patch_proj."),
    ("context_embedder.", "condition_proj."), (".attn.norm_q.", ".attn.q_norm."), (".attn.norm_k.", ".attn.k_norm."),
    (".attn.to_out.0.", ".attn.out_proj."), (".ff.net.0.proj.", ".mlp.fc1."), (".ff.net.2.", ".mlp.fc2."),
)  # fmt: skip
README = """# Embedded model

A small model of the released architecture, trained from scratch on a synthetic world by `dev/mini`; see its README.
Licence: Apache-2.0, like the rest of this repository; no third-party weights or data are inside.
"""


def swap_halves(weight: torch.Tensor) -> torch.Tensor:
    """[value; gate] rows to [gate; value]."""
    value, gate = weight.chunk(2)
    return torch.cat([gate, value])


def denoiser_name(name: str) -> str:
    """Released name of a diffusers parameter."""
    if name.startswith("proj_in."):
        return name.replace("proj_in.", "video_patch_proj.")
    if name.startswith("proj_out."):
        return name.replace("proj_out.", "final_layer.video_out.")
    for ours, theirs in DENOISER_NAMES:
        name = name.replace(ours, theirs)
    return name


def denoiser_tensors(denoiser: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Released tensors of the denoiser: fused QKV in thirds, gate first, mixed precision."""
    state = denoiser.state_dict()
    tensors = {"rope.inv_freq": denoiser.rope.inv_freq}
    for name, weight in state.items():
        if ".attn.to_q." in name:
            parts = [state[name.replace("to_q", part)] for part in ("to_q", "to_k", "to_v")]
            tensors[denoiser_name(name.replace("to_q", "qkv_proj"))] = torch.cat(parts)
        elif ".attn.to_k." not in name and ".attn.to_v." not in name:
            tensors[denoiser_name(name)] = swap_halves(weight) if ".ff.net.0.proj." in name else weight
    return {n: w.float() if n.startswith(FLOAT32) else w.bfloat16() for n, w in tensors.items()}


def denoiser_metadata(schedule: Schedule) -> dict[str, str]:
    """Header of transformer.safetensors."""
    c = model.DENOISER
    config = {
        "hidden_size": c["hidden_size"], "num_layers": c["num_layers"],
        "token_refiner_num_layers": c["num_refiner_layers"], "num_attention_heads": c["num_attention_heads"],
        "attention_head_dim": c["attention_head_dim"], "ffn_hidden_size": c["ffn_dim"], "latents_dim": c["in_channels"],
        "audio_latents_dim": c["audio_in_channels"], "patch_size": list(c["patch_size"]), "text_dim": c["text_dim"],
        "timestep_input_dim": c["freq_dim"], "time_embed_hidden_size": c["time_embed_hidden_dim"],
        "time_embed_dim": c["time_embed_dim"], "rope_inv_freq_len": c["rope_freq_dim"], "rope_theta": c["rope_theta"],
        "norm_eps": 1e-5, "qk_norm_eps": 1e-5, "final_norm_eps": 1e-5,
    }  # fmt: skip
    shifts = {"video": schedule.video_shift, "audio": schedule.audio_shift}
    return {"config": json.dumps(config), "sigma_shift_scales": json.dumps(shifts), "partition": "fl2va",
            "qkv_order": "thirds", "default_steps": str(schedule.steps)}  # fmt: skip


def text_tensors(text: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Released names of the text stack, bfloat16."""
    return {f"model.{name}": weight.bfloat16() for name, weight in text.state_dict().items()}


def text_metadata() -> dict[str, str]:
    """Header of text_encoder.safetensors."""
    rope = {"rope_theta": model.TEXT_ROPE["rope_theta"], "mrope_section": model.TEXT_ROPE["mrope_section"]}
    return {"config": json.dumps(model.TEXT | rope)}


def video_tensors(vae: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Released tensors of the video VAE: QKV interleaved per head, gate first, decoder matrices float16."""
    state = vae.state_dict()
    heads = VIDEO_VAE["decoder_num_attention_heads"]
    width = heads * VIDEO_VAE["decoder_attention_head_dim"]
    tensors = {"decoder.mask_token": torch.zeros(1, 1, width)}
    for name, weight in state.items():
        target = name.replace("decoder.proj_in", "decoder.x_embedder").replace("encoder.down_blocks.", "encoder.down.")
        target = target.replace(".resnets.", ".block.").replace(".conv_shortcut.", ".nin_shortcut.")
        target = target.replace(".downsamplers.0.", ".downsample.").replace(".to_out.0.", ".to_out.")
        target = target.replace(".ff.net.0.proj.", ".ff.w1.").replace(".ff.net.2.", ".ff.w2.")
        if ".attn.to_q." in name:
            parts = [state[name.replace("to_q", part)] for part in ("to_q", "to_k", "to_v")]
            split = [part.unflatten(0, (heads, -1)) for part in parts]
            tensors[target.replace("to_q", "to_qkv")] = torch.stack(split, 1).flatten(0, 2)
        elif ".attn.to_k." not in name and ".attn.to_v." not in name:
            tensors[target] = swap_halves(weight) if ".ff.net.0.proj." in name else weight
    half = {n for n, w in tensors.items() if "transformer_blocks" in n and w.ndim == 2}
    return {n: w.half() if n in half else w.float() for n, w in tensors.items()}


def audio_tensors(vae: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Released names of the audio VAE, weight norm folded, float32."""
    state = vae.state_dict()
    tensors = {}
    for name, weight in state.items():
        if name.endswith(".weight_v"):
            gain = state[name.replace("weight_v", "weight_g")]
            tensors[name.replace("weight_v", "weight")] = torch._weight_norm(weight, gain, 0)
        elif not name.endswith(".weight_g"):
            tensors[name] = weight.float()
    return tensors


def vae_config(config: dict, vae: torch.nn.Module) -> dict[str, str]:
    """Header of a VAE file: every constructor argument of the diffusers class but the statistics."""
    everything = {
        k: v for k, v in vae.config.items() if not k.startswith("_") and k not in ("latents_mean", "latents_std")
    }
    return {"config": json.dumps(everything | config)}


def fit_rgb(pipeline: Pipeline) -> dict[str, list]:
    """Least-squares map from model-space latents to the mean RGB, in [-1, 1], of the pixels under them."""
    generator = torch.Generator().manual_seed(0)
    basis = pipeline.basis
    latent = (
        torch.randn(4096, 24, generator=generator) / basis.std * torch.cat([torch.ones(18), 0.5 / 0.8 * basis.std[18:]])
    )
    raw = latent * basis.std + basis.mean
    blocks = (raw[:, :18] * basis.deviation) @ basis.components.T + basis.centre
    rgb = blocks.view(-1, 3, 1024).mean(-1) * torch.tensor(PIXEL_STD) + torch.tensor(PIXEL_MEAN)
    design = torch.cat([latent, torch.ones(len(latent), 1)], 1).double()
    solution = torch.linalg.lstsq(design, (2 * rgb - 1).double()).solution
    return {"matrix": solution[:-1].float().tolist(), "bias": solution[-1].float().tolist()}


def write(folder: Path, name: str, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write one safetensors file; refuse values that are not finite."""
    bad = [n for n, w in tensors.items() if not bool(torch.isfinite(w.float()).all())]
    if bad:
        raise ValueError(f"{name}: not finite: {bad}")
    save_file({n: w.detach().clone().contiguous() for n, w in tensors.items()}, folder / name, metadata=metadata)
    (folder / name).chmod(0o644)


def main() -> None:
    """`python -m dev.mini.export --runs FOLDER --out assets/mini`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", choices=("weights", "average"), default="average")
    parser.add_argument("--checkpoint", default="last.pt")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--shift", type=float, nargs=2, default=(3.0, 3.0), help="video and audio")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs, out = arguments.runs, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    pipeline = Pipeline(runs, arguments.weights, arguments.checkpoint)
    basis = load_basis(runs / "basis.pt")
    schedule = Schedule(arguments.steps, *arguments.shift)
    write(out, "transformer.safetensors", denoiser_tensors(pipeline.denoiser), denoiser_metadata(schedule))
    write(out, "text_encoder.safetensors", text_tensors(pipeline.text), text_metadata())
    video = video_tensors(pipeline.video_vae) | {"latents_mean": basis.mean, "latents_std": basis.std}
    write(out, "video_vae.safetensors", video, vae_config(VIDEO_VAE, pipeline.video_vae))
    mean, std = audio_scale(runs / "audio_scale.pt")
    audio = audio_tensors(pipeline.audio_vae) | {"latents_mean": mean, "latents_std": std}
    write(out, "audio_vae.safetensors", audio, vae_config(AUDIO_VAE, pipeline.audio_vae))
    (out / "vocabulary.tiktoken").write_bytes((runs / "vocabulary.tiktoken").read_bytes())
    (out / "latent_rgb.json").write_text(json.dumps(fit_rgb(pipeline)))
    (out / "README.md").write_text(README)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(json.dumps({"step": pipeline.step, "bytes": size, "files": sorted(path.name for path in out.iterdir())}))


if __name__ == "__main__":
    main()
