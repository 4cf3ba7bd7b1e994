"""Shapes of the four components, read from the checkpoint itself and compared with its tensors by core/weights."""

from dataclasses import dataclass
from math import prod

from core import constants as c


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiserConfig:
    """The diffusion transformer. Defaults are the released 33B model (MiniMax-H3)."""

    hidden_size: int = 5376
    num_layers: int = 50
    num_refiner_layers: int = 2
    num_heads: int = 56
    head_dim: int = 128
    ffn_dim: int = 14336
    text_dim: int = 5120
    freq_dim: int = 256
    time_hidden_dim: int = 5376
    time_dim: int = 2688
    rope_freq_dim: int = 16
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    qk_norm_eps: float = 1e-5
    final_norm_eps: float = 1e-5
    video_shift: float = c.DEFAULT_VIDEO_SHIFT
    audio_shift: float = c.DEFAULT_AUDIO_SHIFT
    default_steps: int = 20
    curve_points: int = 0  # > 0: "pruned" AdaLN, a table of this many timesteps instead of the time embedder

    @property
    def inner_dim(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def video_row_width(self) -> int:
        return c.VIDEO_LATENT_CHANNELS * c.PATCH_SPATIAL**2


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoderConfig:
    """The Qwen3-VL text stack, only the layers that are used."""

    hidden_size: int = 5120
    num_layers: int = 50
    num_heads: int = 64
    num_kv_heads: int = 8
    head_dim: int = 128
    ffn_dim: int = 25600
    rms_norm_eps: float = 1e-6
    rope_theta: float = 5_000_000.0
    mrope_section: tuple[int, int, int] = (24, 20, 20)
    vocab_size: int = 151936


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoVaeConfig:
    """Causal CNN encoder and ViT decoder."""

    block_out_channels: tuple[int, ...] = (128, 256, 256, 512, 512, 1024)
    layers_per_block: int = 2
    spatial_downsample: tuple[int, ...] = (2, 2, 2, 2, 1, 1)
    temporal_downsample: tuple[int, ...] = (1, 2, 2, 1, 1, 1)
    norm_groups: int = 32
    norm_eps: float = 1e-6
    decoder_layers: int = 36
    decoder_heads: int = 32
    decoder_head_dim: int = 64
    decoder_ffn_mult: int = 4
    decoder_registers: int = 4
    decoder_rope_theta: float = 100.0
    decoder_rotary_dim: int = 48
    decoder_eps: float = 1e-5
    tile_px: int = c.VAE_TILE_PX
    tile_overlap_px: int = c.VAE_TILE_OVERLAP_PX
    latents_mean: tuple[float, ...] = c.VIDEO_LATENTS_MEAN
    latents_std: tuple[float, ...] = c.VIDEO_LATENTS_STD

    @property
    def decoder_dim(self) -> int:
        return self.decoder_heads * self.decoder_head_dim

    @property
    def latent_channels(self) -> int:
        return len(self.latents_mean)

    @property
    def spatial_ratio(self) -> int:
        """Pixels per latent cell on both axes."""
        return prod(self.spatial_downsample)

    @property
    def temporal_ratio(self) -> int:
        """Frames per latent frame before the clip's leading frames are dropped."""
        return prod(self.temporal_downsample)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioVaeConfig:
    """DAC-style encoder and BigVGAN decoder."""

    encoder_dim: int = 64
    encoder_rates: tuple[int, ...] = (2, 4, 4, 5, 5)
    latent_dim: int = 2048
    latent_channels: int = c.AUDIO_LATENT_CHANNELS
    num_heads: int = 8
    decoder_dim: int = 1024
    decoder_rates: tuple[int, ...] = (5, 5, 2, 2, 2, 2, 2)
    decoder_kernels: tuple[int, ...] = (9, 9, 4, 4, 4, 4, 4)
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    resblock_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    sample_rate_hz: int = c.AUDIO_SAMPLE_RATE_HZ
    latents_mean: tuple[float, ...] = c.AUDIO_LATENTS_MEAN
    latents_std: tuple[float, ...] = c.AUDIO_LATENTS_STD

    @property
    def samples_per_latent(self) -> int:
        return prod(self.encoder_rates)
