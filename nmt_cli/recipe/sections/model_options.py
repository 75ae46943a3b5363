"""The options of an architecture, as keys of a recipe."""

from typing import Annotated, Literal

from pydantic import Field

from nmt_cli.recipe.values import STATE, STEPS, Count, Flag, Number, Pieces, Rate, Section, Width


class PaperModel(Section):
    """The Transformer of section 3; what Table 3 varies is an option."""

    num_layers: Annotated[Count, Field(ge=1, le=1000), STATE] = 6
    """Layers of the encoder and of the decoder (N)."""
    d_model: Annotated[Width, STATE] = 512
    """Width of the vectors between sub-layers."""
    d_ff: Annotated[Count, Field(ge=1, le=1_048_576), STATE] = 2048
    """Width inside the feed-forward sub-layers."""
    num_heads: Annotated[Count, Field(ge=1, le=4096), STATE] = 8
    """Attention heads (h)."""
    d_k: Annotated[Width | None, STATE] = None
    """Width of a head's keys; d_model / num_heads if null."""
    d_v: Annotated[Width | None, STATE] = None
    """Width of a head's values; d_model / num_heads if null."""
    dropout: Annotated[Rate, STEPS] = 0.1
    """Dropout on every sub-layer's output and on the embeddings."""
    attention_dropout: Annotated[Rate, STEPS] = 0.0
    """Dropout on the attention weights."""
    relu_dropout: Annotated[Rate, STEPS] = 0.0
    """Dropout inside the feed-forward layers."""
    positions: Annotated[Literal["sinusoidal", "learned"], STATE] = "sinusoidal"
    """Positions: section 3.5's sinusoids, or learned vectors."""
    max_positions: Annotated[Pieces, STATE] = 2048
    """Longest sequence that learned positions can hold."""
    norm: Annotated[Literal["post", "pre"], STATE] = "post"
    """LayerNorm after the residual sum (the paper) or before."""
    tied_embeddings: Annotated[Literal["all", "decoder", "none"], STATE] = "all"
    """One matrix for source, target and softmax (all), for target and softmax (decoder), or three
    (none). With tokenizer.shared: false, the default is decoder."""


class ModelOptions(PaperModel):
    """The options of a Transformer, also what models of other programs do in another way."""

    activation: Annotated[Literal["relu", "gelu", "gelu_tanh", "swish"], STATE] = "relu"
    """Activation of the feed-forward sub-layers: the paper's relu, gelu, its approximation by tanh,
    or swish (SiLU)."""
    attention_biases: Annotated[Flag, STATE] = False
    """Biases in the projections of attention; the paper has none."""
    feed_forward_biases: Annotated[Flag, STATE] = True
    """Biases in the feed-forward sub-layers, as in the paper."""
    norm_epsilon: Annotated[Number, Field(gt=0, le=1), STATE] = 1e-5
    """Added to the variance by LayerNorm."""
    embedding_norm: Annotated[Flag, STATE] = False
    """LayerNorm after the sum of token vectors and positions."""
    scale_embeddings: Annotated[Flag, STATE] = True
    """Token vectors times the square root of d_model, as in the paper."""
    output_bias: Annotated[Flag, STATE] = False
    """A bias for each piece, added before the softmax."""
    sinusoid_frequencies: Annotated[Literal["paper", "tensor2tensor"], STATE] = "paper"
    """Frequencies of the sinusoids, for i from 0 to d_model / 2 - 1: 10000 to the power of -i /
    (d_model / 2), or of -i / (d_model / 2 - 1) as Tensor2Tensor computes them."""
    first_position: Annotated[Count, Field(ge=0, le=1000), STATE] = 0
    """Number of the first position; only for sinusoids."""
    attention_window: Annotated[Annotated[Count, Field(ge=1, le=1_000_000)] | None, STATE] = None
    """Restricted self-attention (section 4): a piece attends to so many pieces before it and, in
    the encoder, to as many after it; null: to all. Attention to the source is not restricted."""
    decoder: Annotated[Literal["attention", "ssru"], STATE] = "attention"
    """What a decoder's layer sees the past by: self-attention, as in the paper, or ssru, a simple
    recurrent unit (Kim et al. 2019). Its state has one size however long the output is, so
    translating is faster."""
    decoder_start: Annotated[Literal["bos", "eos", "zeros"], STATE] = "bos"
    """What the decoder reads first: <s> (bos), </s> (eos), or a token vector of zeros."""
    source_eos: Annotated[Flag, STATE] = True
    """Source sentences end with </s>."""
    decoder_num_layers: Annotated[Annotated[Count, Field(ge=1, le=1000)] | None, STATE] = None
    """Layers of the decoder; null stands for num_layers."""
    decoder_d_ff: Annotated[Annotated[Count, Field(ge=1, le=1_048_576)] | None, STATE] = None
    """Width inside the decoder's feed-forward layers; null stands for d_ff."""
    decoder_num_heads: Annotated[Annotated[Count, Field(ge=1, le=4096)] | None, STATE] = None
    """Heads of the decoder's attention; null stands for num_heads."""

    source_vocabulary_size: Annotated[
        Annotated[Count, Field(ge=4, le=10_000_000)] | None, STATE
    ] = None
    """Pieces of the source's own vocabulary; null if both languages share one. With
    tokenizer.shared: false, what preprocess has found."""
