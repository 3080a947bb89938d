"""One function an operator; the signatures of ``webgpu_ops.ops``.

Written by ``python -m webgpu_ops.schema.stubs`` from the schemas; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, overload

import numpy as np
from onnx import GraphProto

from .core.device import Device
from .core.tensor import SparseTensor, Tensor

Array: TypeAlias = Tensor | np.ndarray
Outputs: TypeAlias = Sequence[str] | Mapping[str, Tensor | None]

@overload
def attention(
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Multi-head attention that projects its input to Q, K and V with one merged weight."""

@overload
def attention(
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def attention_onnx(
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    qk_matmul_output_mode: int = 0,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    is_causal: int = 0,
    opset: int = 24,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """ONNX's own attention: masks, key/value cache, grouped heads, softcap."""

@overload
def attention_onnx(
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    qk_matmul_output_mode: int = 0,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    is_causal: int = 0,
    opset: int = 24,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def attn_lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    QW: Array | None = None,
    MW: Array | None = None,
    V: Array | None = None,
    M: Array | None = None,
    memory_seq_lens: Array | None = None,
    AW: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One-layer LSTM whose cell attends over a memory (Bahdanau attention)."""

@overload
def attn_lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    QW: Array | None = None,
    MW: Array | None = None,
    V: Array | None = None,
    M: Array | None = None,
    memory_seq_lens: Array | None = None,
    AW: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def beam_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: GraphProto | None = None,
    init_decoder: GraphProto | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Beam search over a decoder given as subgraph; returns the best sequences."""

@overload
def beam_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: GraphProto | None = None,
    init_decoder: GraphProto | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def bias_add(
    X: Array,
    bias: Array,
    skip: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """X + bias + skip, the bias running along the last dimension."""

@overload
def bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Dropout(data + bias) + residual, with the mask as an optional output."""

@overload
def bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def bias_gelu(
    A: Array,
    B: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """GELU(A + B) with the error function, B running along the last dimension."""

def bias_softmax(
    data: Array,
    bias: Array,
    *,
    is_inner_broadcast: int,
    axis: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Softmax(data + bias) over the flattened dimensions from axis on."""

def bias_split_gelu(
    X: Array,
    bias: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Add bias, split the last dimension in two, and return left * GELU(right)."""

@overload
def bifurcation_detector(
    src_tokens: Array,
    cur_tokens: Array,
    prev_suffix_match_idx: Array,
    pred_tokens: Array | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Aggressive decoding: take predicted tokens up to where they leave the source; find the next match."""

@overload
def bifurcation_detector(
    src_tokens: Array,
    cur_tokens: Array,
    prev_suffix_match_idx: Array,
    pred_tokens: Array | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def bitmask_bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Dropout(data + bias) + residual, with the mask packed to one bit an element."""

@overload
def bitmask_bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def bitmask_dropout(
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Dropout with the mask packed to one bit an element."""

@overload
def bitmask_dropout(
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def branchwise_rms_norm(
    X: Array,
    scale: Array | None = None,
    *,
    epsilon: float = 1e-05,
    num_branches: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """RMS normalization of each branch of a hyper-connection on its own."""

@overload
def causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution that carries the last inputs over as state."""

@overload
def causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def cdist(
    A: Array,
    B: Array,
    *,
    metric: str = "sqeuclidean",
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Distances between all pairs of rows of two matrices."""

def complex_mul(
    A: Array,
    B: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Product of complex numbers stored as pairs in the last dimension, with broadcasting."""

def complex_mul_conj(
    A: Array,
    B: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times the conjugate of B, complex numbers stored as pairs in the last dimension."""

def conv_state_replay(
    source_backing: Array,
    capture_backing: Array,
    destination_backing: Array,
    metadata: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Rebuild a convolution's rolling state from captured inputs, bit for bit and in place."""

def conv_transpose_with_dynamic_pads(
    X: Array,
    W: Array,
    Pads: Array | None = None,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Transposed convolution whose pads are an input."""

def crop_and_resize(
    X: Array,
    rois: Array,
    batch_indices: Array,
    crop_size: Array,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Crop boxes out of images and resize them to one size."""

@overload
def decoder_attention(
    query: Array,
    key: Array,
    q_weight: Array,
    kv_weight: Array,
    bias: Array,
    key_padding_mask: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    static_kv: Array | None = None,
    use_past: Array | None = None,
    has_layer_state: Array | None = None,
    has_key_padding_mask: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Self or cross attention of a decoder, with projection weights, caches and a key padding mask."""

@overload
def decoder_attention(
    query: Array,
    key: Array,
    q_weight: Array,
    kv_weight: Array,
    bias: Array,
    key_padding_mask: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    static_kv: Array | None = None,
    use_past: Array | None = None,
    has_layer_state: Array | None = None,
    has_key_padding_mask: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def decoder_masked_multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    output_qk: int | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Attention of one new token on given Q, K and V, with caches and beam search."""

@overload
def decoder_masked_multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    output_qk: int | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def decoder_masked_self_attention(
    input: Array,
    weights: Array,
    bias: Array,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Self attention of one new token with a merged projection, caches and beam search."""

@overload
def decoder_masked_self_attention(
    input: Array,
    weights: Array,
    bias: Array,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def dequantize_bfp(
    x: Array,
    shape: Array,
    strides: Array,
    *,
    bfp_type: int,
    block_dim: int = -1,
    dtype: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Unpack block floating point bytes to a float tensor."""

def dequantize_linear(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """(x - x_zero_point) * x_scale, a tensor or an axis at a time."""

def dequantize_with_order(
    input: Array,
    scale_input: Array,
    *,
    order_input: int,
    order_output: int,
    to: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Dequantize an int8 matrix stored in a cublasLt tile order."""

@overload
def dynamic_quantize_lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    W_scale: Array | None = None,
    W_zero_point: Array | None = None,
    R_scale: Array | None = None,
    R_zero_point: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """LSTM with 8-bit weights that quantizes its input and state on the way."""

@overload
def dynamic_quantize_lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    W_scale: Array | None = None,
    W_zero_point: Array | None = None,
    R_scale: Array | None = None,
    R_zero_point: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def dynamic_quantize_matmul(
    A: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A (quantized on the way to uint8) times an 8-bit B, dequantized, plus bias."""

@overload
def dynamic_sparse_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    auxiliary_key: Array | None = None,
    auxiliary_value: Array | None = None,
    selected_indices: Array | None = None,
    selected_counts: Array | None = None,
    seqlens_k: Array | None = None,
    total_sequence_length: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    head_sink: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-06,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Grouped-query attention over selected cache entries, optionally joined with a local window."""

@overload
def dynamic_sparse_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    auxiliary_key: Array | None = None,
    auxiliary_value: Array | None = None,
    selected_indices: Array | None = None,
    selected_counts: Array | None = None,
    seqlens_k: Array | None = None,
    total_sequence_length: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    head_sink: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-06,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def dynamic_time_warping(
    input: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """The cheapest monotone path through a cost matrix."""

@overload
def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None = None,
    word_embedding: Array | None = None,
    position_embedding: Array | None = None,
    segment_embedding: Array | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """BERT's embedding layer: word, position and segment embeddings added and layer-normalized."""

@overload
def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None = None,
    word_embedding: Array | None = None,
    position_embedding: Array | None = None,
    segment_embedding: Array | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def engram_gate(
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float = 1e-05,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Engram gate: normalized keys against normalized queries decide how much of the value passes."""

@overload
def engram_gate(
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float = 1e-05,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def ep_context(
    *inputs: Array,
    embed_mode: int = 1,
    ep_cache_context: str | None = None,
    ep_sdk_version: str | None = None,
    hardware_architecture: str | None = None,
    main_context: int = 1,
    max_size: int = 0,
    notes: str | None = None,
    onnx_model_filename: str | None = None,
    partition_name: str | None = None,
    source: str | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A compiled graph of an execution provider, run as one node."""

def expand_dims(
    X: Array,
    axis: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Insert a dimension of size 1 at axis."""

def fast_gelu(
    X: Array,
    bias: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """GELU(X + bias) by the tanh approximation."""

def fused_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Convolution plus an optional tensor Z, followed by an activation."""

def fused_gemm(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """activation(alpha * A @ B + beta * C), A and B optionally transposed."""

def fused_matmul(
    A: Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """alpha * A @ B with broadcasting and transposes of the last two dimensions or of the batch."""

def fused_matmul_activation(
    A: Array,
    B: Array,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """FusedMatMul followed by an activation."""

def gated_add(
    X: Array,
    Y: Array,
    gate: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """X + Y * gate, one gate value a row."""

@overload
def gated_delta_net(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Linear attention with an explicit recurrent state (gated delta rule and relatives), packed tokens."""

@overload
def gated_delta_net(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def gated_delta_net_state_replay(
    source_backing: Array,
    capsule_backing: Array,
    destination_backing: Array,
    metadata: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Replay captured GatedDeltaNet transitions into an inactive recurrent state, in place."""

def gated_relative_position_bias(
    query_layer: Array,
    query_bias: Array,
    rel_pos: Array,
    weight: Array,
    bias: Array,
    eco_a: Array,
    token_offset: Array | None = None,
    *,
    num_heads: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Relative position bias scaled by gates computed from the queries."""

def gated_rms_norm(
    X: Array,
    scale: Array,
    gate: Array,
    *,
    activation: str = "silu",
    epsilon: float = 1e-05,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """RMS normalization times an activated gate."""

def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Gather rows of a block-quantized table and dequantize them."""

def gather_nd(
    data: Array,
    indices: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Gather slices by index tuples in the last dimension of indices."""

def gelu(
    X: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """x * 0.5 * (1 + erf(x / sqrt(2)))."""

def gemm_fast_gelu(
    X: Array,
    W: Array,
    bias: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """FastGelu(X @ W + bias)."""

def gemm_float8(
    A: Array,
    B: Array,
    C: Array | None = None,
    scaleA: Array | None = None,
    scaleB: Array | None = None,
    scaleY: Array | None = None,
    *,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = 1,
    transA: int = 0,
    transB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Matrix product of float8 or float matrices with scales, bias, activation and a chosen output type."""

@overload
def gemma_rotary_embedding(
    emb: Array,
    q: Array,
    q_rot: Array,
    k: Array,
    k_rot: Array,
    *,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Gemma's rotary position embedding of queries and keys from given angles."""

@overload
def gemma_rotary_embedding(
    emb: Array,
    q: Array,
    q_rot: Array,
    k: Array,
    k_rot: Array,
    *,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def greedy_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    encoder: GraphProto | None = None,
    init_decoder: GraphProto | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Greedy decoding over a decoder given as subgraph."""

def grid_sample(
    X: Array,
    Grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Sample an image at the positions of a grid."""

def group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-05,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Group normalization of images, optionally followed by SiLU."""

@overload
def group_query_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    seqlens_k: Array | None = None,
    total_sequence_length: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    causal: int = 1,
    do_rotary: int | None = None,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int | None = None,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-06,
    qk_output: int = 0,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float | None = None,
    v_quant_type: str = "NONE",
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Causal attention with shared key/value heads: plain or quantized cache, rotary, local window."""

@overload
def group_query_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    seqlens_k: Array | None = None,
    total_sequence_length: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    causal: int = 1,
    do_rotary: int | None = None,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int | None = None,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-06,
    qk_output: int = 0,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float | None = None,
    v_quant_type: str = "NONE",
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def hyper_connection_low_rank_mix(
    streams: Array,
    norm_scale: Array,
    down_weight: Array,
    up_weight: Array,
    inject_weight: Array,
    prev_block_output: Array | None = None,
    prev_post_gate: Array | None = None,
    *,
    num_branches: int,
    epsilon: float = 1e-05,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """A whole hyper-connection block with a low-rank gate network."""

@overload
def hyper_connection_low_rank_mix(
    streams: Array,
    norm_scale: Array,
    down_weight: Array,
    up_weight: Array,
    inject_weight: Array,
    prev_block_output: Array | None = None,
    prev_post_gate: Array | None = None,
    *,
    num_branches: int,
    epsilon: float = 1e-05,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def hyper_connection_post_mix(
    streams: Array,
    block_output: Array,
    post_mix: Array,
    stream_mix: Array | None = None,
    *,
    num_branches: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Mix the streams of a hyper-connection and inject a branch's output."""

def hyper_connection_pre_mix(
    streams: Array,
    pre_mix: Array,
    *,
    num_branches: int = 0,
    reduction_scale: float = 1.0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Reduce the streams of a hyper-connection to the input of a branch."""

def inverse(
    X: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Inverse of each square matrix of a batch."""

def irfft(
    X: Array,
    *,
    signal_ndim: int,
    normalized: int = 0,
    onesided: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Inverse of Rfft: real signals from one-sided spectra."""

def is_all_finite(
    *input: Array,
    isinf_only: int = 0,
    isnan_only: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Whether no input holds an infinity or NaN."""

@overload
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Linear attention with a recurrent state (linear, gated, delta or gated delta rule)."""

@overload
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def linear_attention_gate(
    a: Array,
    dt_bias: Array,
    decay_scale: Array,
    b: Array | None = None,
    *,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Decay and beta of a linear attention layer from its raw gate projections."""

@overload
def linear_attention_gate(
    a: Array,
    dt_bias: Array,
    decay_scale: Array,
    b: Array | None = None,
    *,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def longformer_attention(
    input: Array,
    weight: Array,
    bias: Array,
    mask: Array,
    global_weight: Array,
    global_bias: Array,
    global_: Array,
    *,
    num_heads: int,
    window: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Self attention of a local window around each token plus chosen global tokens."""

def matmul_block_quantized_fp4_weight(
    A: Array,
    B: Array,
    weight_scale: Array,
    weight_scale_2: Array,
    input_scale: Array | None = None,
    bias: Array | None = None,
    *,
    block_size: int = 16,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times a float4 weight with a scale for each block."""

def matmul_block_quantized_fp8_weight(
    A: Array,
    B: Array,
    b_scale: Array,
    a_scale: Array | None = None,
    bias: Array | None = None,
    *,
    block_size: int = 128,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times a float8 weight with a scale for each block."""

def matmul_bnb4(
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times a 4-bit weight in bitsandbytes' FP4 or NF4 format."""

def matmul_fp_q4(
    A: Array,
    B: Array,
    B_shape: Array,
    *,
    blk_quant_type: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times a 4-bit weight packed with its scales in one blob."""

def matmul_integer16(
    A: Array,
    B: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Integer matrix product of 16-bit matrices into 32 bits."""

def matmul_integer_to_float(
    A: Array,
    B: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Integer matrix product with zero points, scaled to float, plus bias."""

def matmul_nbits(
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """A times a weight quantized by blocks to 2 to 8 bits."""

@overload
def matmul_nbits_mlp(
    A: Array,
    skip: Array | None = None,
    norm_scale: Array | None = None,
    gate_B: Array | None = None,
    gate_scales: Array | None = None,
    gate_bias: Array | None = None,
    up_B: Array | None = None,
    up_scales: Array | None = None,
    up_bias: Array | None = None,
    *,
    K: int,
    N: int,
    activation: str,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-05,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Gate and up projections of an MLP with n-bit weights, fused with normalization and activation."""

@overload
def matmul_nbits_mlp(
    A: Array,
    skip: Array | None = None,
    norm_scale: Array | None = None,
    gate_B: Array | None = None,
    gate_scales: Array | None = None,
    gate_bias: Array | None = None,
    up_B: Array | None = None,
    up_scales: Array | None = None,
    up_bias: Array | None = None,
    *,
    K: int,
    N: int,
    activation: str,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-05,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def matmul_nbits_qkv(
    A: Array,
    skip: Array | None = None,
    norm_scale: Array | None = None,
    q_B: Array | None = None,
    q_scales: Array | None = None,
    q_bias: Array | None = None,
    k_B: Array | None = None,
    k_scales: Array | None = None,
    k_bias: Array | None = None,
    v_B: Array | None = None,
    v_scales: Array | None = None,
    v_bias: Array | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-06,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V projections with n-bit weights, fused with normalization."""

@overload
def matmul_nbits_qkv(
    A: Array,
    skip: Array | None = None,
    norm_scale: Array | None = None,
    q_B: Array | None = None,
    q_scales: Array | None = None,
    q_bias: Array | None = None,
    k_B: Array | None = None,
    k_scales: Array | None = None,
    k_bias: Array | None = None,
    v_B: Array | None = None,
    v_scales: Array | None = None,
    v_bias: Array | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-06,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def maxpool_with_mask(
    X: Array,
    M: Array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Max pooling that skips the elements masked by 0."""

def moe(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_experts_bias: Array | None = None,
    fc2_experts_weights: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Mixture of experts: route each token to its k best feed-forward experts."""

def mrotary_embedding(
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    mrope_section: Sequence[int],
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    mrope_layout: int | None = None,
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Multimodal rotary position embedding with a section of channels for each position axis."""

def mul_integer(
    A: Array,
    A_zero_point: Array | None = None,
    B: Array | None = None,
    B_zero_point: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Product of 8-bit integers with zero points, as int32."""

@overload
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Multi-head self or cross attention on given Q, K and V, with bias, masks and caches."""

@overload
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def murmur_hash3(
    X: Array,
    *,
    positive: int = 1,
    seed: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """32-bit MurmurHash3 of each element."""

@overload
def ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Engram's hash ids of the n-grams that end at each token."""

@overload
def ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def ngram_repeat_block(
    input_ids: Array,
    scores: Array,
    *,
    ngram_size: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Set the scores of tokens that would repeat an n-gram to -inf."""

def nhwc_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Convolution of channels-last tensors."""

def nhwc_fused_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Convolution of channels-last tensors plus an optional tensor Z, followed by an activation."""

def nhwc_max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Max pooling of channels-last 8-bit tensors."""

def packed_attention(
    input: Array,
    weights: Array,
    bias: Array,
    token_offset: Array,
    cumulative_sequence_length: Array,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Attention on a batch whose padding was removed."""

def packed_multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    token_offset: Array | None = None,
    cumulative_sequence_length: Array | None = None,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """MultiHeadAttention on a batch whose padding was removed."""

@overload
def packed_sparse_attention_indexer(
    query: Array,
    key: Array | None = None,
    query_norm_weight: Array | None = None,
    key_norm_weight: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    cumulative_sequence_lengths: Array | None = None,
    past_sequence_lengths: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_key_state: Array | None = None,
    past_kv_buffer: Array | None = None,
    past_gate_buffer: Array | None = None,
    past_state_lengths: Array | None = None,
    state_update_capture_count: Array | None = None,
    state_update_active: Array | None = None,
    indexshare_mode: Array | None = None,
    merged_indices: Array | None = None,
    merged_counts: Array | None = None,
    merged_status: Array | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    state_capacity: int,
    epsilon: float = 1e-06,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    indexshare_state_policy: str = "default",
    max_output_entries: int = 0,
    scale: float | None = None,
    state_update_capacity: int = 0,
    token_budget: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """SparseAttentionIndexer on packed requests, with captures for speculative decoding."""

@overload
def packed_sparse_attention_indexer(
    query: Array,
    key: Array | None = None,
    query_norm_weight: Array | None = None,
    key_norm_weight: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    cumulative_sequence_lengths: Array | None = None,
    past_sequence_lengths: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_key_state: Array | None = None,
    past_kv_buffer: Array | None = None,
    past_gate_buffer: Array | None = None,
    past_state_lengths: Array | None = None,
    state_update_capture_count: Array | None = None,
    state_update_active: Array | None = None,
    indexshare_mode: Array | None = None,
    merged_indices: Array | None = None,
    merged_counts: Array | None = None,
    merged_status: Array | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    state_capacity: int,
    epsilon: float = 1e-06,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    indexshare_state_policy: str = "default",
    max_output_entries: int = 0,
    scale: float | None = None,
    state_update_capacity: int = 0,
    token_budget: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def packed_sparse_attention_indexer_merge(
    base_indices: Array,
    base_counts: Array,
    base_row_indices: Array,
    range_starts: Array | None = None,
    range_ends: Array | None = None,
    additional_indices: Array | None = None,
    additional_counts: Array | None = None,
    *,
    max_output_entries: int,
    policy_mode: str,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Union of a selection with a range or another selection, in order of first occurrence."""

@overload
def packed_sparse_attention_indexer_merge(
    base_indices: Array,
    base_counts: Array,
    base_row_indices: Array,
    range_starts: Array | None = None,
    range_ends: Array | None = None,
    additional_indices: Array | None = None,
    additional_counts: Array | None = None,
    *,
    max_output_entries: int,
    policy_mode: str,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def pad(
    data: Array,
    pads: Array,
    value: Array | None = None,
    *,
    mode: str = "constant",
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Pad a tensor by amounts given as an input."""

@overload
def paged_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    cumulative_sequence_length: Array | None = None,
    past_seqlens: Array | None = None,
    block_table: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    slot_mapping: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    do_rotary: int | None = None,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float | None = None,
    rotary_interleaved: int | None = None,
    rotary_offset: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    v_cache_dtype: str = "",
    v_head_size: int | None = None,
    v_quant_type: str = "NONE",
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Attention of packed requests over a key/value cache kept in blocks."""

@overload
def paged_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    cumulative_sequence_length: Array | None = None,
    past_seqlens: Array | None = None,
    block_table: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    slot_mapping: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    do_rotary: int | None = None,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float | None = None,
    rotary_interleaved: int | None = None,
    rotary_offset: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    v_cache_dtype: str = "",
    v_head_size: int | None = None,
    v_quant_type: str = "NONE",
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def qattention(
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Attention with 8-bit input and weights."""

@overload
def qattention(
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    num_heads: int,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def qembed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None = None,
    word_embedding_quant: Array | None = None,
    position_embedding_quant: Array | None = None,
    segment_embedding: Array | None = None,
    gamma_quant: Array | None = None,
    beta_quant: Array | None = None,
    mask: Array | None = None,
    word_embedding_scale: Array | None = None,
    position_embedding_scale: Array | None = None,
    segment_embedding_scale: Array | None = None,
    gamma_scale: Array | None = None,
    beta_scale: Array | None = None,
    word_embedding_zero_point: Array | None = None,
    position_embedding_zero_point: Array | None = None,
    segment_embedding_zero_point: Array | None = None,
    gamma_zero_point: Array | None = None,
    beta_zero_point: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """EmbedLayerNormalization with 8-bit tables and weights."""

@overload
def qembed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None = None,
    word_embedding_quant: Array | None = None,
    position_embedding_quant: Array | None = None,
    segment_embedding: Array | None = None,
    gamma_quant: Array | None = None,
    beta_quant: Array | None = None,
    mask: Array | None = None,
    word_embedding_scale: Array | None = None,
    position_embedding_scale: Array | None = None,
    segment_embedding_scale: Array | None = None,
    gamma_scale: Array | None = None,
    beta_scale: Array | None = None,
    word_embedding_zero_point: Array | None = None,
    position_embedding_zero_point: Array | None = None,
    segment_embedding_zero_point: Array | None = None,
    gamma_zero_point: Array | None = None,
    beta_zero_point: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def qgemm(
    A: Array,
    a_scale: Array,
    a_zero_point: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array,
    C: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """alpha * A @ B + C of 8-bit matrices, requantized or as float."""

def qlinear_add(
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None = None,
    B: Array | None = None,
    B_scale: Array | None = None,
    B_zero_point: Array | None = None,
    C_scale: Array | None = None,
    C_zero_point: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Sum of 8-bit tensors, requantized, with broadcasting."""

def qlinear_average_pool(
    X: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Average pooling of 8-bit tensors."""

def qlinear_concat(
    Y_scale: Array,
    Y_zero_point: Array,
    *inputs: Array,
    axis: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Concatenate 8-bit tensors of different scales under one scale."""

def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Convolution of 8-bit tensors, channels first or last."""

def qlinear_global_average_pool(
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    *,
    channels_last: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Average of each channel of an 8-bit tensor."""

def qlinear_leaky_relu(
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None = None,
    Y_scale: Array | None = None,
    Y_zero_point: Array | None = None,
    *,
    alpha: float = 0.01,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Leaky ReLU of an 8-bit tensor, requantized."""

def qlinear_mul(
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None = None,
    B: Array | None = None,
    B_scale: Array | None = None,
    B_zero_point: Array | None = None,
    C_scale: Array | None = None,
    C_zero_point: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Product of 8-bit tensors, requantized, with broadcasting."""

def qlinear_reduce_mean(
    data: Array,
    data_scale: Array,
    data_zero_point: Array | None = None,
    reduced_scale: Array | None = None,
    reduced_zero_point: Array | None = None,
    *,
    axes: Sequence[int],
    keepdims: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Mean of an 8-bit tensor over axes, requantized."""

def qlinear_sigmoid(
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None = None,
    Y_scale: Array | None = None,
    Y_zero_point: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Sigmoid of an 8-bit tensor, requantized."""

def qlinear_softmax(
    X: Array,
    X_scale: Array,
    x_zero_point: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    opset: int,
    axis: int = -1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Softmax of an 8-bit tensor, requantized."""

def qlinear_where(
    condition: Array,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    Y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Choose between two 8-bit tensors of different scales by a condition."""

def qmoe(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_scales: Array | None = None,
    fc1_experts_bias: Array | None = None,
    fc2_experts_weights: Array | None = None,
    fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    fc1_global_scale: Array | None = None,
    fc2_global_scale: Array | None = None,
    fc1_act_scale: Array | None = None,
    fc2_act_scale: Array | None = None,
    fc1_act_block_scale: Array | None = None,
    fc2_act_block_scale: Array | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Mixture of experts with quantized expert weights (integers, float8 or float4)."""

def qordered_attention(
    input: Array,
    scale_input: Array,
    scale_Q_gemm: Array,
    scale_K_gemm: Array,
    scale_V_gemm: Array,
    Q_weight: Array,
    K_weight: Array,
    V_weight: Array,
    scale_Q_weight: Array,
    scale_K_weight: Array,
    scale_V_weight: Array,
    Q_bias: Array,
    K_bias: Array,
    V_bias: Array,
    scale_QKT_gemm: Array | None = None,
    scale_QKT_softmax: Array | None = None,
    scale_values_gemm: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    qkv_hidden_sizes: Sequence[int] | None = None,
    unidirectional: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Attention in int8 throughout, matrices stored in cublasLt orders."""

def qordered_gelu(
    X: Array,
    scale_X: Array,
    scale_Y: Array,
    *,
    order_X: int | None = None,
    order_Y: int | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """GELU of an int8 matrix stored in a cublasLt order."""

def qordered_layer_normalization(
    X: Array,
    scale_X: Array,
    scale: Array,
    B: Array | None = None,
    scale_Y: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    order_X: int = 1,
    order_Y: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Layer normalization of an int8 matrix stored in a cublasLt order."""

def qordered_longformer_attention(
    input: Array,
    scale_input: Array,
    weight: Array,
    scale_weight: Array,
    bias: Array,
    scale_bias: Array,
    scale_qkv_gemm: Array,
    mask: Array,
    global_weight: Array,
    scale_global_weight: Array,
    global_bias: Array,
    scale_global_gemm: Array,
    global_: Array,
    scale_output: Array,
    *,
    num_heads: int,
    order_global_weight: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    window: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """LongformerAttention in int8, matrices stored in cublasLt orders."""

def qordered_matmul(
    A: Array,
    scale_A: Array,
    B: Array,
    scale_B: Array,
    scale_Y: Array,
    bias: Array | None = None,
    C: Array | None = None,
    scale_C: Array | None = None,
    *,
    order_A: int,
    order_B: int,
    order_Y: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Product of int8 matrices stored in cublasLt orders, plus bias and a scaled C."""

@overload
def quantize_bfp(
    x: Array,
    *,
    bfp_type: int,
    block_dim: int = -1,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Pack a float tensor as block floating point bytes."""

@overload
def quantize_bfp(
    x: Array,
    *,
    bfp_type: int,
    block_dim: int = -1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def quantize_linear(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """saturate(round(x / y_scale) + y_zero_point), a tensor or an axis at a time."""

def quantize_with_order(
    input: Array,
    scale_input: Array,
    *,
    order_input: int,
    order_output: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Quantize a matrix to int8 in a cublasLt tile order."""

def quick_gelu(
    X: Array,
    *,
    alpha: float = 1.702,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """x * sigmoid(alpha * x)."""

def range(
    start: Array,
    limit: Array,
    delta: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Numbers from start up to, not including, limit in steps of delta."""

def reduce_sum_integer(
    data: Array,
    *,
    axes: Sequence[int],
    keepdims: int,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Sum of an 8-bit tensor over axes, as 32-bit integers."""

def relative_position_bias(
    bias_table: Array,
    query_length: Array,
    key_length: Array,
    *,
    max_distance: int,
    is_bidirectional: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """T5's binned relative position bias from a table."""

@overload
def remove_padding(
    input: Array,
    sequence_token_count: Array,
    *,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Drop the padding tokens of a batch and say where the others came from."""

@overload
def remove_padding(
    input: Array,
    sequence_token_count: Array,
    *,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def restore_padding(
    input: Array,
    token_offset: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Undo RemovePadding, filling the padding with zeros."""

def rfft(
    X: Array,
    *,
    normalized: int = 0,
    onesided: int = 1,
    signal_ndim: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """One-sided Fourier transform of real signals."""

@overload
def rms_norm_rotary(
    X: Array,
    scale: Array,
    position_ids: Array,
    cosine: Array,
    sine: Array,
    prefill_numerics: Array | None = None,
    *,
    rotary_embedding_dim: int,
    epsilon: float = 1e-06,
    flatten_batch: int = 0,
    input_start: int = 0,
    input_width: int = 0,
    use_fp32_arithmetic: int = 1,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """RMS normalization of each head followed by a partial rotary embedding."""

@overload
def rms_norm_rotary(
    X: Array,
    scale: Array,
    position_ids: Array,
    cosine: Array,
    sine: Array,
    prefill_numerics: Array | None = None,
    *,
    rotary_embedding_dim: int,
    epsilon: float = 1e-06,
    flatten_batch: int = 0,
    input_start: int = 0,
    input_width: int = 0,
    use_fp32_arithmetic: int = 1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def rotary_embedding(
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Rotary position embedding from cosine and sine caches."""

def sample_op(
    X: Array,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Return the input unchanged."""

@overload
def sampling(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    presence_mask: Array | None = None,
    seed: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    custom: int = 0,
    decoder_start_token_id: int = -1,
    encoder: GraphProto | None = None,
    filter_value: float = -1e20,
    init_decoder: GraphProto | None = None,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Decoding by top-p sampling over a decoder given as subgraph."""

@overload
def sampling(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    presence_mask: Array | None = None,
    seed: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    custom: int = 0,
    decoder_start_token_id: int = -1,
    encoder: GraphProto | None = None,
    filter_value: float = -1e20,
    init_decoder: GraphProto | None = None,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def scaled_silu(
    X: Array,
    scale: Array | None = None,
    *,
    alpha: float = 1.0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """SiLU(scale * X), rounded to the tensor's type after each step."""

@overload
def skip_group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-05,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Group normalization of X + skip + bias, optionally followed by SiLU."""

@overload
def skip_group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-05,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def skip_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Layer normalization of input + skip + bias."""

@overload
def skip_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def skip_simplified_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """RMS normalization of input + skip + bias."""

@overload
def skip_simplified_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def snpe(
    *inputs: Array,
    DLC: str,
    notes: str | None = None,
    snpe_version: str | None = None,
    target_device: str | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A graph compiled for Qualcomm's SNPE, run as one node."""

@overload
def sparse_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    block_row_indices: Array | None = None,
    block_col_indices: Array | None = None,
    total_sequence_length: Array | None = None,
    key_total_sequence_lengths: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    sparse_block_size: int,
    do_rotary: int | None = None,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped-query attention limited to the blocks of a sparse layout."""

@overload
def sparse_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    block_row_indices: Array | None = None,
    block_col_indices: Array | None = None,
    total_sequence_length: Array | None = None,
    key_total_sequence_lengths: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    sparse_block_size: int,
    do_rotary: int | None = None,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def sparse_attention_indexer(
    query: Array,
    key: Array | None = None,
    query_norm_weight: Array | None = None,
    key_norm_weight: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    mask: Array | None = None,
    past_key: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_sequence_length: Array | None = None,
    past_proj_buffer: Array | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    epsilon: float = 1e-06,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    scale: float | None = None,
    token_budget: int | None = None,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """Select, for each query token, the cache entries that a sparse attention may read."""

@overload
def sparse_attention_indexer(
    query: Array,
    key: Array | None = None,
    query_norm_weight: Array | None = None,
    key_norm_weight: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    mask: Array | None = None,
    past_key: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_sequence_length: Array | None = None,
    past_proj_buffer: Array | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    epsilon: float = 1e-06,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    scale: float | None = None,
    token_budget: int | None = None,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def sparse_paged_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    cumulative_sequence_length: Array | None = None,
    past_seqlens: Array | None = None,
    block_table: Array | None = None,
    slot_mapping: Array | None = None,
    selected_indices: Array | None = None,
    selected_counts: Array | None = None,
    auxiliary_key: Array | None = None,
    auxiliary_value: Array | None = None,
    auxiliary_lengths: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-06,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    softcap: float | None = None,
    v_quant_type: str = "NONE",
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """PagedAttention over selected entries, optionally joined with a local window."""

@overload
def sparse_paged_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    key_cache: Array | None = None,
    value_cache: Array | None = None,
    cumulative_sequence_length: Array | None = None,
    past_seqlens: Array | None = None,
    block_table: Array | None = None,
    slot_mapping: Array | None = None,
    selected_indices: Array | None = None,
    selected_counts: Array | None = None,
    auxiliary_key: Array | None = None,
    auxiliary_value: Array | None = None,
    auxiliary_lengths: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-06,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    softcap: float | None = None,
    v_quant_type: str = "NONE",
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def sparse_to_dense_matmul(
    A: SparseTensor,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """alpha * A @ B for a sparse A and a dense B."""

def tokenizer(
    X: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> np.ndarray:
    """Split strings into tokens at separators or by a regular expression."""

def torch_embedding(
    weight: Array,
    indices: Array,
    padding_idx: Array | None = None,
    scale_grad_by_freq: Array | None = None,
    *,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Rows of a weight table by index, as torch.nn.functional.embedding."""

def transpose_matmul(
    A: Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """The older name of FusedMatMul."""

def trilu(
    X: Array,
    k: Array | None = None,
    *,
    upper: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """The upper or lower triangle of each matrix of a batch."""

def unfold_tensor(
    input: Array,
    *,
    size: int,
    dim: int = -1,
    step: int = 1,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """All windows of one dimension as a new last dimension."""

@overload
def unique(
    x: Array,
    *,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct values of a vector in order of first occurrence, with index and count of each."""

@overload
def unique(
    x: Array,
    *,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def varlen_causal_conv_with_state(
    input: Array,
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None = None,
    initial_state: Array | None = None,
    capture_count: Array | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> tuple[Tensor, Tensor]:
    """CausalConvWithState on packed sequences of different lengths."""

@overload
def varlen_causal_conv_with_state(
    input: Array,
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None = None,
    initial_state: Array | None = None,
    capture_count: Array | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def varlen_ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    cumulative_sequence_length: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    past_segment_ids: Array | None = None,
    capture_count: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """NGramHashMapping on packed sequences of different lengths."""

@overload
def varlen_ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    cumulative_sequence_length: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    past_segment_ids: Array | None = None,
    capture_count: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def whisper_beam_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    cross_qk_layer_head: Array | None = None,
    extra_decoding_ids: Array | None = None,
    temperature: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    beginning_timestamp_token_id: int | None = None,
    decoder_output_cross_qk: int | None = None,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: GraphProto | None = None,
    init_decoder: GraphProto | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int | None = None,
    no_timestamps_token_id: int | None = None,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size: int = -1,
    outputs: None = None,
    device: Device | None = None,
) -> Tensor:
    """Beam search for Whisper, with its timestamp rules and cross-attention outputs."""

@overload
def whisper_beam_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    cross_qk_layer_head: Array | None = None,
    extra_decoding_ids: Array | None = None,
    temperature: Array | None = None,
    *,
    decoder: GraphProto,
    eos_token_id: int,
    pad_token_id: int,
    beginning_timestamp_token_id: int | None = None,
    decoder_output_cross_qk: int | None = None,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: GraphProto | None = None,
    init_decoder: GraphProto | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int | None = None,
    no_timestamps_token_id: int | None = None,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size: int = -1,
    outputs: Outputs,
    device: Device | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
def word_conv_embedding(
    Sequence: Array,
    W: Array,
    B: Array,
    C: Array,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
    outputs: Outputs | None = None,
    device: Device | None = None,
) -> Tensor:
    """Embed words by a convolution over their characters."""
