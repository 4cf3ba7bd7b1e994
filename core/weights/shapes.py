"""The shape of every tensor of a component, as its configuration implies it.

A file whose tensors differ is of another model or damaged; the check finds it before anything runs. Names are the
canonical ones of core/weights/names.py. Proof: tests/core/weights/test_shapes.py against the state dictionaries of the
diffusers and transformers classes.
"""

from core import constants as c
from core.model.config import AudioVaeConfig, DenoiserConfig, TextEncoderConfig, VideoVaeConfig

Shapes = dict[str, tuple[int, ...]]
ADALN_MODALITIES, ADALN_SLOTS = 3, 6
MOMENTS = 2  # the encoders give a mean and a log-variance per latent channel
FILTER_TAPS = 12  # anti-aliasing filter of the sound decoder


def _linear(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _norm(name: str, channels: int) -> Shapes:
    return {f"{name}.weight": (channels,), f"{name}.bias": (channels,)}


def denoiser_shapes(config: DenoiserConfig) -> Shapes:
    """Tensors of the denoiser; with `curve_points` the table replaces the time embedder."""
    hidden = config.hidden_size
    shapes: Shapes = {
        **_linear("video_patch_proj", hidden, config.video_row_width),
        **_linear("audio_patch_proj", hidden, c.AUDIO_LATENT_CHANNELS),
        **_linear("condition_proj", hidden, config.text_dim),
        "token_refiner.final_norm.weight": (hidden,),
        "final_layer.norm.weight": (hidden,),
        **_linear("final_layer.adaln_proj.linear", 2 * hidden, config.time_dim),
        **_linear("final_layer.video_out", config.video_row_width, hidden),
        **_linear("final_layer.audio_out", c.AUDIO_LATENT_CHANNELS, hidden),
    }
    if config.curve_points:
        shapes["adaln_t_table"] = (config.curve_points, config.time_dim)
    else:
        shapes |= _linear("time_embedder.proj_in", config.time_hidden_dim, config.freq_dim)
        shapes |= _linear("time_embedder.proj_out", config.time_dim, config.time_hidden_dim)
    for index in range(config.num_refiner_layers):
        shapes |= _denoiser_block(config, f"token_refiner.blocks.{index}")
    for index in range(config.num_layers):
        shapes |= _denoiser_block(config, f"blocks.{index}")
        rows = ADALN_MODALITIES * ADALN_SLOTS * hidden
        shapes |= _linear(f"blocks.{index}.adaln_proj.linear", rows, config.time_dim)
    return shapes


def _denoiser_block(config: DenoiserConfig, name: str) -> Shapes:
    hidden, inner = config.hidden_size, config.inner_dim
    return {
        f"{name}.norm1.weight": (hidden,),
        f"{name}.norm2.weight": (hidden,),
        f"{name}.attn.qkv_proj.weight": (3 * inner, hidden),
        f"{name}.attn.q_norm.weight": (config.head_dim,),
        f"{name}.attn.k_norm.weight": (config.head_dim,),
        f"{name}.attn.out_proj.weight": (hidden, inner),
        f"{name}.mlp.fc1.weight": (2 * config.ffn_dim, hidden),
        f"{name}.mlp.fc2.weight": (hidden, config.ffn_dim),
    }


def text_encoder_shapes(config: TextEncoderConfig) -> Shapes:
    """Embedding and the used layers; no final norm, no head."""
    hidden, wide, narrow = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: Shapes = {"embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_layers):
        shapes |= {
            f"layers.{index}.{leaf}.weight": shape
            for leaf, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (wide, hidden),
                "self_attn.k_proj": (narrow, hidden),
                "self_attn.v_proj": (narrow, hidden),
                "self_attn.o_proj": (hidden, wide),
                "self_attn.q_norm": (config.head_dim,),
                "self_attn.k_norm": (config.head_dim,),
                "mlp.gate_proj": (config.ffn_dim, hidden),
                "mlp.up_proj": (config.ffn_dim, hidden),
                "mlp.down_proj": (hidden, config.ffn_dim),
            }.items()
        }
    return shapes


def video_vae_shapes(config: VideoVaeConfig) -> Shapes:
    """Encoder, the two 1x1x1 convolutions and the ViT decoder."""
    return _video_encoder(config) | _video_decoder(config)


def _conv3d(name: str, out: int, into: int, kernel: int) -> Shapes:
    return {f"{name}.weight": (out, into, kernel, kernel, kernel), f"{name}.bias": (out,)}


def _video_encoder(config: VideoVaeConfig) -> Shapes:
    channels, latents = config.block_out_channels, config.latent_channels
    shapes = _conv3d("encoder.conv_in", channels[0], 3, 3)
    into = channels[0]
    for level, out in enumerate(channels):
        for block in range(config.layers_per_block):
            name = f"encoder.down.{level}.block.{block}"
            shapes |= _norm(f"{name}.norm1", into) | _conv3d(f"{name}.conv1", out, into, 3)
            shapes |= _norm(f"{name}.norm2", out) | _conv3d(f"{name}.conv2", out, out, 3)
            if into != out:
                shapes |= _conv3d(f"{name}.nin_shortcut", out, into, 1)
            into = out
        if config.spatial_downsample[level] > 1 or config.temporal_downsample[level] > 1:
            shapes |= _conv3d(f"encoder.down.{level}.downsample.conv", out, out, 3)
    shapes |= _norm("encoder.norm_out", into) | _conv3d("encoder.conv_out", MOMENTS * latents, into, 3)
    return shapes | _conv3d("quant_conv", MOMENTS * latents, MOMENTS * latents, 1)


def _video_decoder(config: VideoVaeConfig) -> Shapes:
    dim, inner, latents = config.decoder_dim, config.decoder_dim * config.decoder_ffn_mult, config.latent_channels
    shapes = _conv3d("post_quant_conv", latents, latents, 1) | _linear("decoder.x_embedder", dim, latents)
    shapes["decoder.register_tokens"] = (1, config.decoder_registers, dim)
    for index in range(config.decoder_layers):
        name = f"decoder.transformer_blocks.{index}"
        shapes |= {f"{name}.{leaf}": (dim,) for leaf in ("norm1.weight", "norm2.weight", "scale1", "scale2")}
        shapes |= _linear(f"{name}.attn.to_qkv", 3 * dim, dim) | _linear(f"{name}.attn.to_out", dim, dim)
        shapes |= _linear(f"{name}.ff.w1", 2 * inner, dim) | _linear(f"{name}.ff.w2", dim, inner)
    pixels = 3 * config.temporal_ratio * config.spatial_ratio**2
    return shapes | _norm("decoder.norm_out", dim) | _linear("decoder.proj_out", pixels, dim)


def audio_vae_shapes(config: AudioVaeConfig) -> Shapes:
    """Encoder, the attention block between, and the sound decoder; weight norm folded."""
    return _audio_encoder(config) | _audio_middle(config) | _audio_decoder(config)


def _conv1d(name: str, out: int, into: int, kernel: int) -> Shapes:
    return {f"{name}.weight": (out, into, kernel), f"{name}.bias": (out,)}


def _audio_encoder(config: AudioVaeConfig) -> Shapes:
    channels = config.encoder_dim
    shapes = _conv1d("encoder.block.0", channels, 1, 7)
    for index, rate in enumerate(config.encoder_rates, 1):
        name = f"encoder.block.{index}.block"
        for unit in range(3):
            shapes |= {f"{name}.{unit}.block.{leaf}.alpha": (1, channels, 1) for leaf in (0, 2)}
            shapes |= _conv1d(f"{name}.{unit}.block.1", channels, channels, 7)
            shapes |= _conv1d(f"{name}.{unit}.block.3", channels, channels, 1)
        shapes[f"{name}.3.alpha"] = (1, channels, 1)
        shapes |= _conv1d(f"{name}.4", 2 * channels, channels, 2 * rate)
        channels *= 2
    last = len(config.encoder_rates) + 1
    shapes[f"encoder.block.{last}.alpha"] = (1, channels, 1)
    return shapes | _conv1d(f"encoder.block.{last + 1}", config.latent_dim, channels, 3)


def _audio_middle(config: AudioVaeConfig) -> Shapes:
    wide, narrow = config.latent_dim, config.latent_channels
    attention = {f"pre_block.attn.{leaf}": (wide,) for leaf in ("q_bias", "v_bias", "zero_k_bias")}
    return {
        **_norm("pre_block.norm1", wide), **_norm("pre_block.norm3", wide), **_norm("pre_block.norm2", narrow),
        "pre_block.attn.qkv.weight": (3 * wide, wide), **attention,
        **_linear("pre_block.attn.proj", narrow, narrow), **_linear("pre_block.proj", narrow, wide),
        **_norm("pre_block.mlp.norm", narrow), **_linear("pre_block.mlp.w0", 2 * narrow, narrow),
        **_linear("pre_block.mlp.w1", 2 * narrow, narrow), **_linear("pre_block.mlp.w2", narrow, 2 * narrow),
        **_conv1d("mean_proj", narrow, narrow, 1), **_conv1d("logs_proj", narrow, narrow, 1),
        **_conv1d("dec_in_proj", wide, narrow, 1),
    }  # fmt: skip


def _audio_decoder(config: AudioVaeConfig) -> Shapes:
    shapes = _conv1d("decoder.conv_pre", config.decoder_dim, config.latent_dim, 7)
    channels = config.decoder_dim
    for stage, kernel in enumerate(config.decoder_kernels):
        shapes[f"decoder.ups.{stage}.0.weight"] = (channels, channels // 2, kernel)
        channels //= 2
        shapes[f"decoder.ups.{stage}.0.bias"] = (channels,)
        for index, kernel in enumerate(config.resblock_kernels):
            name = f"decoder.resblocks.{stage * len(config.resblock_kernels) + index}"
            for step in range(len(config.resblock_dilations[index])):
                shapes |= _conv1d(f"{name}.convs1.{step}", channels, channels, kernel)
                shapes |= _conv1d(f"{name}.convs2.{step}", channels, channels, kernel)
                shapes |= _snake(f"{name}.activations.{2 * step}", channels)
                shapes |= _snake(f"{name}.activations.{2 * step + 1}", channels)
    shapes["decoder.conv_post.weight"] = (1, channels, 7)
    return shapes | _snake("decoder.activation_post", channels)


def _snake(name: str, channels: int) -> Shapes:
    taps = (1, 1, FILTER_TAPS)
    return {
        f"{name}.act.alpha": (channels,), f"{name}.act.beta": (channels,), f"{name}.upsample.filter": taps,
        f"{name}.downsample.lowpass.filter": taps,
    }  # fmt: skip
