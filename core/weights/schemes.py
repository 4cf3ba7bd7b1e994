"""Quantised linears of safetensors files: what the tensors beside a weight say about how to read it.

A linear `m` quantised for ComfyUI carries a marker `m.comfy_quant` (JSON as bytes) and scales under `m.weight_scale`
and the like. The traps: the marker decides, for file names lie and one file mixes schemes; the group of a rotation is
256 or 64 as the marker says, and ignoring it gives noise; `m.input_scale` belongs to quantised inputs, ours are not.
Proof: tests/core/weights/test_schemes.py, whole models in each scheme.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat, nvfp4_scales_bytes
from core.weights.tensor_file import StoredTensor

MARKER, WEIGHT = ".comfy_quant", ".weight"
SCALE_NAMES = ("weight_scale", "scale_weight")  # the second in files without markers
INPUT_SCALE_NAMES = ("input_scale", "scale_input")  # of quantised inputs
DEFAULT_GROUP = 256
Tensors = dict[str, StoredTensor]


def with_schemes(path: Path, tensors: Tensors) -> Tensors:
    """The tensors of a file, quantised weights joined with their scales; a scheme that is not known has no format.

    raises: CheckpointError when a marker is damaged or the scales do not fit the weight
    """
    joined = dict(tensors)
    for name, weight in tensors.items():
        if not name.endswith(WEIGHT):
            continue
        stem = name.removesuffix(WEIGHT)
        marker = tensors.get(stem + MARKER)
        if marker is not None:
            joined[name] = _marked(path, stem, weight, _parse_marker(path, marker), tensors)
        elif weight.dtype == "F8_E4M3":
            joined[name] = _unmarked_fp8(path, stem, weight, tensors)
    return joined


def _parse_marker(path: Path, marker: StoredTensor) -> dict:
    """The statements of a marker, those under `params` among them."""
    try:
        stated = json.loads(marker.data.tobytes())
        return dict(stated.get("params") or {}) | stated
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{path.name}: the marker {marker.name} is damaged.") from error


def _marked(path: Path, stem: str, weight: StoredTensor, stated: dict, tensors: Tensors) -> StoredTensor:
    scheme = str(stated.get("format"))
    read = _READERS.get(scheme)
    if read is None or len(weight.shape) != 2:
        return replace(weight, dtype=scheme, format=None)
    joined = replace(read(path, stem, weight, tensors), rotation=_rotation(stated))
    if joined.rotation and (joined.rotation < 0 or joined.shape[1] % joined.rotation):
        raise CheckpointError(
            f"{path.name}: {weight.name} is rotated in groups of {joined.rotation}, which do not divide its "
            f"{joined.shape[1]} columns."
        )
    return replace(joined, pre_scale=_pre_scale(path, stem, joined, tensors))


def _rotation(stated: dict) -> int:
    if not stated.get("convrot"):
        return 0
    group = stated.get("convrot_groupsize", DEFAULT_GROUP)
    return group if isinstance(group, int) else -1


def _pre_scale(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor | None:
    scale = tensors.get(f"{stem}.pre_quant_scale")
    if scale is not None and (scale.format is None or prod(scale.shape) != weight.shape[1]):
        raise _unfit(path, scale, weight)
    return scale


def _unfit(path: Path, scale: StoredTensor, weight: StoredTensor) -> CheckpointError:
    return CheckpointError(
        f"{path.name}: {scale.name} is {scale.dtype} {list(scale.shape)}, which does not fit {weight.name} "
        f"{list(weight.shape)}."
    )


def _side(path: Path, stem: str, names: tuple[str, ...], tensors: Tensors) -> StoredTensor:
    found = [tensors[f"{stem}.{name}"] for name in names if f"{stem}.{name}" in tensors]
    if not found:
        raise CheckpointError(f"{path.name}: {stem}{WEIGHT} is quantised, but {stem}.{names[0]} is missing.")
    return found[0]


def _unmarked_fp8(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor:
    """Plain numbers, or with the scale beside them; with scales under other names nobody knows what they mean."""
    sides = {name.removeprefix(f"{stem}.") for name in tensors if name.startswith(f"{stem}.") and "scale" in name}
    unknown = sorted(sides - {*SCALE_NAMES, *INPUT_SCALE_NAMES})
    if unknown:
        return replace(weight, dtype=f"F8_E4M3 with {unknown[0]}", format=None)
    return _with_row_scales(path, stem, weight, tensors) if sides & set(SCALE_NAMES) else weight


def _with_row_scales(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor:
    """One float scale for all rows, or one for each."""
    scale = _side(path, stem, SCALE_NAMES, tensors)
    count = prod(scale.shape)
    if scale.format not in (WeightFormat.F32, WeightFormat.F16, WeightFormat.BF16):
        raise _unfit(path, scale, weight)
    if count == 1:
        return replace(weight, scale=scale)
    if count != weight.shape[0]:
        raise _unfit(path, scale, weight)
    return replace(weight, scales=scale)


def _int8(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor:
    return _with_row_scales(path, stem, _of_dtype(weight, "I8", WeightFormat.I8_ROW), tensors)


def _fp8(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor:
    return _with_row_scales(path, stem, _of_dtype(weight, "F8_E4M3", WeightFormat.F8_E4M3), tensors)


def _nvfp4(path: Path, stem: str, weight: StoredTensor, tensors: Tensors) -> StoredTensor:
    """Pairs of codes as bytes, so that the stored width is half of the true one."""
    rows, packed = weight.shape
    weight = replace(_of_dtype(weight, "U8", WeightFormat.NVFP4), shape=(rows, 2 * packed))
    scale = _side(path, stem, ("weight_scale_2",), tensors)
    blocks = _side(path, stem, ("weight_scale",), tensors)
    if scale.format is None or prod(scale.shape) != 1:
        raise _unfit(path, scale, weight)
    needed = nvfp4_scales_bytes(*weight.shape)
    if weight.is_flattened or blocks.dtype not in ("F8_E4M3", "U8") or blocks.data.size < needed:
        raise _unfit(path, blocks, weight)
    return replace(weight, scale=scale, scales=blocks)


def _of_dtype(weight: StoredTensor, dtype: str, weight_format: WeightFormat) -> StoredTensor:
    if weight.dtype != dtype:
        raise CheckpointError(f"{weight.name} is stored as {weight.dtype}, its marker means {dtype}.")
    return replace(weight, format=weight_format)


_READERS: dict[str, Callable[[Path, str, StoredTensor, Tensors], StoredTensor]] = {
    "int8_tensorwise": _int8,
    "float8_e4m3fn": _fp8,
    "nvfp4": _nvfp4,
}
