"""Products with quantized weights, and lookups in quantized tables."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import reference

E4M3 = ml_dtypes.float8_e4m3fn

# What the codes of MatMulBnb4 stand for, as fractions of a block's largest magnitude.
FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4])
FP4 = np.concatenate([FP4, -FP4])
NF4 = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ]
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def unpack(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first ``count`` numbers of a stream of ``bits`` bits each, along the last axis.

    The lowest bits of a byte come first, so a number may begin in one byte and end in the next.
    """
    stream = np.unpackbits(np.ascontiguousarray(data), axis=-1, bitorder="little")
    fields = stream[..., : count * bits].reshape(*data.shape[:-1], count, bits)
    return (fields.astype(np.int64) << np.arange(bits)).sum(-1)


def dequantize_blocks(
    B: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None,
    g_idx: np.ndarray | None,
    K: int,
    N: int,
    bits: int,
    block_size: int,
) -> np.ndarray:
    """The [N, K] weights of MatMulNBits."""
    blocks = -(-K // block_size)
    codes = unpack(B.reshape(N, -1), bits, blocks * block_size)[:, :K]
    if zero_points is None:
        zeros = np.full((N, blocks), float(1 << (bits - 1)))
    elif zero_points.dtype == np.uint8:
        zeros = unpack(zero_points.reshape(N, -1), bits, blocks).astype(np.float64)
    else:
        zeros = zero_points.reshape(N, blocks).astype(np.float64)
    block = np.arange(K) // block_size if g_idx is None else g_idx[:K]
    return (codes - zeros[:, block]) * scales.reshape(N, blocks).astype(np.float64)[:, block]


def product(a: np.ndarray, weights: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """a @ weights^T + bias, in float64."""
    y = a.astype(np.float64) @ weights.T
    return y if bias is None else y + bias.astype(np.float64)


@reference("MatMulNBits")
def mat_mul_n_bits(
    A: np.ndarray,
    B: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    g_idx: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> tuple[np.ndarray, ...]:
    """A times the transpose of the [N, K] weights, plus bias."""
    weights = dequantize_blocks(B, scales, zero_points, g_idx, K, N, bits, block_size)
    return (product(A, weights, bias).astype(A.dtype),)


def normalized(
    A: np.ndarray, skip: np.ndarray | None, norm_scale: np.ndarray | None, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """What the projections of a fused operator multiply, and A + skip in A's type."""
    total = A.astype(np.float64)
    if skip is not None:
        total = total + skip.astype(np.float64)
    if norm_scale is None:
        return total, total.astype(A.dtype)
    root = np.sqrt((total * total).mean(-1, keepdims=True) + epsilon)
    return total / root * norm_scale.astype(np.float64), total.astype(A.dtype)


@reference("MatMulNBitsMlp")
def mat_mul_n_bits_mlp(
    A: np.ndarray,
    gate_B: np.ndarray,
    gate_scales: np.ndarray,
    up_B: np.ndarray,
    up_scales: np.ndarray,
    skip: np.ndarray | None = None,
    norm_scale: np.ndarray | None = None,
    gate_bias: np.ndarray | None = None,
    up_bias: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    activation: str,
    bits: int = 4,
    accuracy_level: int = 0,
    epsilon: float = 1e-5,
) -> tuple[np.ndarray, ...]:
    """silu(gate) * up, and A + skip."""
    a, total = normalized(A, skip, norm_scale, epsilon)
    gate, up = (
        product(a, dequantize_blocks(w, s, None, None, K, N, bits, block_size), bias)
        for w, s, bias in ((gate_B, gate_scales, gate_bias), (up_B, up_scales, up_bias))
    )
    return (gate / (1.0 + np.exp(-gate)) * up).astype(A.dtype), total


@reference("MatMulNBitsQkv")
def mat_mul_n_bits_qkv(
    A: np.ndarray,
    norm_scale: np.ndarray,
    q_B: np.ndarray,
    q_scales: np.ndarray,
    k_B: np.ndarray,
    k_scales: np.ndarray,
    v_B: np.ndarray,
    v_scales: np.ndarray,
    skip: np.ndarray | None = None,
    q_bias: np.ndarray | None = None,
    k_bias: np.ndarray | None = None,
    v_bias: np.ndarray | None = None,
    *,
    K: int,
    Nq: int,
    Nkv: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    epsilon: float = 1e-6,
) -> tuple[np.ndarray, ...]:
    """Q, K, V and A + skip."""
    a, total = normalized(A, skip, norm_scale, epsilon)
    parts = ((q_B, q_scales, q_bias, Nq), (k_B, k_scales, k_bias, Nkv), (v_B, v_scales, v_bias, Nkv))
    q, k, v = (
        product(a, dequantize_blocks(w, s, None, None, K, n, bits, block_size), bias).astype(A.dtype)
        for w, s, bias, n in parts
    )
    return q, k, v, total


@reference("MatMulBnb4")
def mat_mul_bnb4(
    A: np.ndarray,
    B: np.ndarray,
    absmax: np.ndarray,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> tuple[np.ndarray, ...]:
    """A times the [N, K] weights, transposed or not. The high nibble of a byte comes first."""
    codes = np.stack([B >> 4, B & 15], -1).reshape(-1)[: N * K]
    values = (FP4, NF4)[quant_type][codes] * absmax.astype(np.float64)[np.arange(N * K) // block_size]
    weights = values.reshape(N, K)
    return (product(A, weights if transB else weights.T, None).astype(A.dtype),)


@reference("MatMulFpQ4")
def mat_mul_fp_q4(
    A: np.ndarray, B: np.ndarray, B_shape: np.ndarray, *, blk_quant_type: int = 1
) -> tuple[np.ndarray, ...]:
    """A times the [K, N] matrix in the blob: columns of blocks, each with its scale in front."""
    K, N = (int(d) for d in B_shape)
    size = 64 if blk_quant_type == 2 else 32
    blocks = -(-K // size)
    head = 5 if blk_quant_type == 1 else 4
    blob = B.reshape(N, blocks, head + size // 2)
    scales = np.ascontiguousarray(blob[..., :4]).view("<f4").astype(np.float64)
    zeros = blob[..., 4:5].astype(np.float64) if blk_quant_type == 1 else 8.0
    packed = blob[..., head:].reshape(N, blocks, size // 32, 16)
    codes = np.concatenate([packed & 15, packed >> 4], -1).reshape(N, blocks, size)
    weights = ((codes - zeros) * scales).reshape(N, -1)[:, :K]
    return (product(A, weights, None).astype(A.dtype),)


@reference("MatMulBlockQuantizedFp4Weight")
def mat_mul_block_quantized_fp4_weight(
    A: np.ndarray,
    B: np.ndarray,
    weight_scale: np.ndarray,
    weight_scale_2: np.ndarray,
    input_scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    block_size: int = 16,
) -> tuple[np.ndarray, ...]:
    """A times the transpose of e2m1(B) * weight_scale_2 * e4m3(weight_scale)."""
    K = 2 * B.shape[1]
    scales = weight_scale.view(E4M3).astype(np.float64)[:, np.arange(K) // block_size]
    weights = (E2M1[unpack(B, 4, K)] * float(weight_scale_2.reshape(())) * scales).astype(A.dtype)
    return (product(A, weights.astype(np.float64), bias).astype(A.dtype),)


@reference("MatMulBlockQuantizedFp8Weight")
def mat_mul_block_quantized_fp8_weight(
    A: np.ndarray,
    B: np.ndarray,
    b_scale: np.ndarray,
    a_scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    block_size: int = 128,
) -> tuple[np.ndarray, ...]:
    """A, through e4m3 where a_scale is given, times the transpose of e4m3(B) * b_scale."""
    scales = b_scale.astype(np.float64)[:, np.arange(B.shape[1]) // block_size]
    a = A.astype(np.float64)
    if a_scale is not None:
        scale = float(a_scale.reshape(()))
        a = np.clip(a / scale, -448.0, 448.0).astype(E4M3).astype(np.float64) * scale
    return (product(a, B.astype(np.float64) * scales, bias).astype(A.dtype),)


@reference("GatherBlockQuantized")
def gather_block_quantized(
    data: np.ndarray,
    indices: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> tuple[np.ndarray, ...]:
    """Slices of the dequantized data; an index out of range gives zeros."""
    packed = data.dtype == np.uint8 and bits < 8
    codes = unpack(data, bits, data.shape[-1] * 8 // bits) if packed else data
    axis = quantize_axis % codes.ndim
    length = codes.shape[axis]
    block = np.arange(length) // (block_size or max(1, length))
    zeros: np.ndarray | float = 0.0
    if zero_points is not None:
        whole = unpack(zero_points, bits, scales.shape[-1]) if packed else zero_points
        zeros = np.take(whole.astype(np.float64), block, axis)
    elif data.dtype == np.uint8:
        zeros = float(1 << (bits - 1))
    table = (codes.astype(np.float64) - zeros) * np.take(scales.astype(np.float64), block, axis)
    along = gather_axis % codes.ndim
    size = codes.shape[along]
    at = np.asarray(indices, np.int64)
    inside = (at >= -size) & (at < size)
    result = np.take(table, np.where(inside, at, 0), along) if size else np.zeros(0)
    if not size:
        result = np.zeros(codes.shape[:along] + at.shape + codes.shape[along + 1 :])
    mask = inside.reshape(at.shape + (1,) * (codes.ndim - along - 1))
    return (np.where(mask, result, 0.0).astype(scales.dtype),)
