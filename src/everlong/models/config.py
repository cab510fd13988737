"""Configurations of the architectures, free of torch. Names are those of the published configurations."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from everlong.errors import EverlongError


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig:
    """What every architecture's configuration has; the defaults are the official ones."""

    architecture: ClassVar[str]

    vocab_size: int
    """Number of token ids."""
    pad_vocab_size_multiple: int = 16
    """The embedding has vocab_size rows rounded up to a multiple of this."""
    d_model: int = 768
    """Width of the residual stream."""
    n_layer: int = 24
    """Number of blocks."""
    norm_epsilon: float = 1e-5
    """Added to the mean square in RMSNorm (the variance in LayerNorm)."""
    residual_in_fp32: bool = True
    """The residual stream is float32 in a model of lower precision."""
    tie_embeddings: bool = True
    """The head shares the embedding's matrix."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding and columns of the logits."""
        return -(-self.vocab_size // self.pad_vocab_size_multiple) * self.pad_vocab_size_multiple

    def __post_init__(self) -> None:
        for name in ("vocab_size", "pad_vocab_size_multiple", "d_model", "n_layer"):
            if getattr(self, name) < 1:
                raise EverlongError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class MambaConfig(LanguageModelConfig):
    """What Mamba-1 and Mamba-2 have in common."""

    expand: int = 2
    """Width of the mixer over d_model."""
    d_conv: int = 4
    """Taps of the short convolution; its state holds d_conv - 1 inputs."""
    bias: bool = False
    """Bias in the mixer's linear projections in and out."""
    conv_bias: bool = True
    """Bias in the short convolution."""
    dt_min: float = 0.001
    """Lower end of the log-uniform step sizes at initialisation."""
    dt_max: float = 0.1
    """Upper end of the log-uniform step sizes at initialisation."""
    dt_init_floor: float = 1e-4
    """Floor of the step sizes at initialisation."""

    @property
    def d_inner(self) -> int:
        """Width of the mixer."""
        return self.expand * self.d_model


@dataclass(frozen=True, kw_only=True)
class Mamba1Config(MambaConfig):
    """Mamba-1 (Gu & Dao 2023, arXiv 2312.00752), as published in state-spaces/mamba; FalconMamba with bcdt_rms."""

    architecture: ClassVar[str] = "mamba1"

    pad_vocab_size_multiple: int = 8
    """The embedding has vocab_size rows rounded up to a multiple of this."""
    d_state: int = 16
    """States a channel: N."""
    dt_rank: int | Literal["auto"] = "auto"
    """Rank of the step sizes' projection; auto: d_model / 16, rounded up."""
    dt_init: Literal["random", "constant"] = "random"
    """How the step sizes' projection starts: drawn uniformly between -s and s (published), or s throughout."""
    dt_scale: float = 1.0
    """The s of dt_init is dt_scale / sqrt(dt_rank)."""
    A_init_scale: float = 1.0
    """A starts from S4D-real's 1 .. N times this; well below 1 it is a planted slow-decay regime."""
    bcdt_rms: bool = False
    """B, C and dt (before its projection) are divided by their root mean square, as in FalconMamba."""
    bcdt_rms_epsilon: float = 1e-6
    """Added to those mean squares."""

    @property
    def time_step_rank(self) -> int:
        """dt_rank as a number."""
        return -(-self.d_model // 16) if self.dt_rank == "auto" else self.dt_rank

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_step_rank < 1:
            raise EverlongError(f"dt_rank is {self.dt_rank}; it must be at least 1, or auto")
        if self.A_init_scale <= 0:
            raise EverlongError(f"A_init_scale is {self.A_init_scale}; it must be positive")


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(MambaConfig):
    """Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), as published in state-spaces/mamba."""

    architecture: ClassVar[str] = "mamba2"

    d_state: int = 128
    """Keys a head: the N of the paper, K here."""
    headdim: int = 64
    """Values a head: the P of the paper, V here."""
    ngroups: int = 1
    """Groups of heads that share B and C."""
    A_init_range: tuple[float, float] = (1.0, 16.0)
    """Range of the decay rates A at initialisation."""
    A_init: Literal["uniform", "log_spaced"] = "uniform"
    """How A starts: drawn uniformly (published), or log-spaced over a layer's heads (the planted slow-decay regime)."""
    dt_limit: tuple[float, float] = (0.0, float("inf"))
    """Step sizes are clamped to this range."""

    @property
    def nheads(self) -> int:
        """Number of heads."""
        return self.d_inner // self.headdim

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_inner % self.headdim:
            raise EverlongError(f"headdim {self.headdim} does not divide expand * d_model = {self.d_inner}")
        if self.nheads % self.ngroups:
            raise EverlongError(f"ngroups {self.ngroups} does not divide the {self.nheads} heads")
        if not 0 < self.A_init_range[0] <= self.A_init_range[1]:
            raise EverlongError(f"A_init_range is {self.A_init_range}; both ends must be positive and in order")


@dataclass(frozen=True, kw_only=True)
class GLAConfig(LanguageModelConfig):
    """Gated linear attention (Yang et al. 2024, arXiv 2312.06635), as in flash-linear-attention's GLAConfig."""

    architecture: ClassVar[str] = "gla"

    pad_vocab_size_multiple: int = 1
    """The embedding is not padded."""
    norm_epsilon: float = 1e-6
    """Added to the mean square in RMSNorm."""
    tie_embeddings: bool = False
    """The head has its own matrix."""
    expand_k: float = 0.5
    """Width of the keys over d_model."""
    expand_v: float = 1.0
    """Width of the values over d_model."""
    num_heads: int = 4
    """Number of heads."""
    gate_low_rank_dim: int = 16
    """Rank of the map to the decays."""
    gate_logit_normalizer: float = 16.0
    """Log-decays are divided by this; far above is a planted regime, of a model that cannot forget."""
    use_short_conv: bool = False
    """Short convolutions, then silu, on queries, keys and values."""
    conv_size: int = 4
    """Taps of the short convolutions; their state holds conv_size - 1 inputs."""
    hidden_ratio: float = 4.0
    """Size of the MLP, see intermediate_size."""
    intermediate_size: int = 0
    """Width of the MLP; 0: two thirds of hidden_ratio * d_model, rounded up to a multiple of 256."""

    @property
    def key_width(self) -> int:
        """Keys of all heads."""
        return round(self.expand_k * self.d_model)

    @property
    def value_width(self) -> int:
        """Values of all heads."""
        return round(self.expand_v * self.d_model)

    @property
    def mlp_width(self) -> int:
        """Width of the MLP."""
        return self.intermediate_size or -(-int(self.d_model * self.hidden_ratio * 2 / 3) // 256) * 256

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("expand_k", "expand_v"):
            width = getattr(self, name) * self.d_model
            if width < 1 or width % self.num_heads:
                raise EverlongError(f"num_heads {self.num_heads} does not divide {name} * d_model = {width:g}")


@dataclass(frozen=True, kw_only=True)
class RWKV6Config(LanguageModelConfig):
    """RWKV-6, "Finch" (Peng et al. 2024, arXiv 2404.05892), as published by BlinkDL and in flash-linear-attention."""

    architecture: ClassVar[str] = "rwkv6"

    pad_vocab_size_multiple: int = 1
    """The embedding is not padded."""
    norm_epsilon: float = 1e-5
    """Added to the variance in LayerNorm."""
    group_norm_epsilon: float = 64e-5
    """Added to the variance in the group norm after the recurrence (1e-5 times the square of BlinkDL's divisor, 8)."""
    tie_embeddings: bool = False
    """The head has its own matrix."""
    headdim: int = 64
    """Keys a head."""
    expand_k: float = 1.0
    """Width of the keys over d_model."""
    expand_v: float = 1.0
    """Width of the values over d_model."""
    proj_low_rank_dim: int = 32
    """Rank of the map to each of the five interpolations (BlinkDL: 64 in models 4096 wide)."""
    gate_low_rank_dim: int = 64
    """Rank of the map to the decays (BlinkDL: 128 in models 4096 wide)."""
    time_decay_range: tuple[float, float] = (-6.0, -1.0)
    """The logarithm of the decay rates at initialisation, from a layer's first key to its last (published: -6, -1);
    around -20 is a planted regime, of a model that cannot forget."""
    hidden_ratio: float = 3.5
    """Size of the channel mix, see intermediate_size."""
    intermediate_size: int = 0
    """Width of the channel mix; 0: hidden_ratio * d_model, rounded up to a multiple of 32."""

    @property
    def key_width(self) -> int:
        """Keys of all heads."""
        return round(self.expand_k * self.d_model)

    @property
    def value_width(self) -> int:
        """Values of all heads."""
        return round(self.expand_v * self.d_model)

    @property
    def nheads(self) -> int:
        """Number of heads."""
        return self.key_width // self.headdim

    @property
    def mlp_width(self) -> int:
        """Width of the channel mix."""
        return self.intermediate_size or -(-int(self.d_model * self.hidden_ratio) // 32) * 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.headdim < 1 or self.expand_k * self.d_model % self.headdim:
            raise EverlongError(
                f"headdim {self.headdim} does not divide expand_k * d_model = {self.expand_k * self.d_model:g}"
            )
        if self.time_decay_range[0] > self.time_decay_range[1]:
            raise EverlongError(f"time_decay_range is {self.time_decay_range}; its ends must be in order")
        if self.nheads < 1 or self.expand_v * self.d_model % self.nheads:
            raise EverlongError(
                f"the {self.nheads} heads do not divide expand_v * d_model = {self.expand_v * self.d_model:g}"
            )


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the next token is chosen from the logits."""

    temperature: float = 0.0
    """Logits are divided by it; 0: always the likeliest token."""
    top_k: int | None = None
    """Draw among this many of the likeliest tokens only."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that together have at least this probability only."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise EverlongError(f"temperature is {self.temperature}; it must be at least 0 and finite")
        if self.top_k is not None and self.top_k < 1:
            raise EverlongError(f"top_k is {self.top_k}; it must be at least 1")
        if not 0 < self.top_p <= 1:
            raise EverlongError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
