"""Linears quantised the way ComfyUI stores them: stored tensors, and the float32 weight that they stand for.

Quantisers are plain (nearest value, largest magnitude as scale); what a file means is independent of how well it was
made. Rotation and tiles come from tests/native/kernel_data.py.
"""

import json
from collections.abc import Callable

import numpy as np
import torch

from tests.native.kernel_data import E2M1_VALUES, in_tiles, kronecker

Stored = dict[str, np.ndarray | torch.Tensor]


def marker(**stated) -> np.ndarray:
    return np.frombuffer(json.dumps(stated).encode(), dtype=np.uint8)


def rotated(weight: np.ndarray, group: int) -> np.ndarray:
    return (weight.astype(np.float64).reshape(-1, group) @ kronecker(group)).reshape(weight.shape)


def int8(stem: str, weight: np.ndarray, group: int = 0) -> tuple[Stored, np.ndarray]:
    """A scale per row; `group` of the rotation, 0 for none."""
    values = rotated(weight, group) if group else weight.astype(np.float64)
    scale = (np.abs(values).max(axis=1, keepdims=True) / 127).astype(np.float32)
    codes = np.rint(values / scale).astype(np.int8)
    restored = codes * scale.astype(np.float64)
    stated = {"convrot": True, "convrot_groupsize": group} if group else {}
    stored = {
        f"{stem}.weight": codes, f"{stem}.weight_scale": scale,
        f"{stem}.comfy_quant": marker(format="int8_tensorwise", **stated),
    }  # fmt: skip
    return stored, rotated(restored, group) if group else restored


def rotated_int8(stem: str, weight: np.ndarray) -> tuple[Stored, np.ndarray]:
    return int8(stem, weight, 16)


def fp8(stem: str, weight: np.ndarray) -> tuple[Stored, np.ndarray]:
    """One scale for the tensor, and a scale of the input that is of no use here."""
    scale = np.float32(np.abs(weight).max() / 448)
    codes = torch.from_numpy(weight / scale).to(torch.float8_e4m3fn)
    stored = {
        f"{stem}.weight": codes, f"{stem}.weight_scale": np.array(scale),
        f"{stem}.input_scale": np.array(np.float32(3)), f"{stem}.comfy_quant": marker(format="float8_e4m3fn"),
    }  # fmt: skip
    return stored, codes.double().numpy() * float(scale)


def nvfp4(stem: str, weight: np.ndarray, pre_scale: np.ndarray | None = None) -> tuple[Stored, np.ndarray]:
    """`pre_scale` [columns]: what the input is multiplied by, and the stored weight divided by."""
    values = weight.astype(np.float64) / (1 if pre_scale is None else pre_scale.astype(np.float64))
    blocks = values.reshape(len(values), -1, 16)
    whole = np.float32(np.abs(blocks).max() / (448 * 6))
    steps = torch.from_numpy(np.abs(blocks).max(axis=2) / 6 / whole).to(torch.float8_e4m3fn)
    scale = steps.double().numpy()[..., None] * float(whole)
    codes = np.abs(blocks[..., None] / np.where(scale == 0, 1, scale)[..., None] - E2M1_VALUES).argmin(axis=3)
    flat = codes.reshape(weight.shape).astype(np.uint8)
    tiles = in_tiles(steps.view(torch.uint8).numpy()).reshape(-(-len(weight) // 128) * 128, -1)
    stored = {
        f"{stem}.weight": flat[:, ::2] << 4 | flat[:, 1::2],
        f"{stem}.weight_scale": torch.from_numpy(tiles).view(torch.float8_e4m3fn),
        f"{stem}.weight_scale_2": np.array(whole), f"{stem}.comfy_quant": marker(format="nvfp4"),
    }  # fmt: skip
    restored = (E2M1_VALUES[codes] * scale).reshape(weight.shape)
    if pre_scale is not None:
        stored[f"{stem}.pre_quant_scale"] = torch.from_numpy(pre_scale).bfloat16()
        restored = restored * torch.from_numpy(pre_scale).bfloat16().double().numpy()
    return stored, restored


def quantised(tensors: dict, chosen: dict[str, Callable]) -> tuple[Stored, dict[str, np.ndarray]]:
    """(tensors as stored, float32 tensors that they stand for); `chosen`: weight name -> one of the functions above."""
    stored, meant = dict(tensors), dict(tensors)
    for name, scheme in chosen.items():
        del stored[name]
        parts, restored = scheme(name.removesuffix(".weight"), tensors[name])
        stored |= parts
        meant[name] = restored.astype(np.float32)
    return stored, meant
