"""Matrices in cublasLt's memory orders."""

from __future__ import annotations

import numpy as np

from . import reference

COL, ROW, COL32, COL4_4R2_8C, COL32_2R_4R4 = range(5)


def places(order: int, rows: int, columns: int) -> np.ndarray:
    """Where in memory each element of a [rows, columns] matrix lies, in elements."""
    r, c = np.arange(rows)[:, None], np.arange(columns)[None, :]
    if order == COL:
        return c * rows + r
    if order == ROW:
        return r * columns + c
    band = c // 32 * 32 * rows
    if order == COL32:
        return band + r * 32 + c % 32
    if order == COL4_4R2_8C:
        # 8 x 32 tiles: even rows, then odd ones; of those each 8 columns in halves of 4 x 4.
        tile = band + r // 8 * 256
        return tile + r % 2 * 128 + c % 32 // 8 * 32 + c % 8 // 4 * 16 + r % 8 // 2 * 4 + c % 4
    tile = band + r // 32 * 1024
    return tile + ((r % 8 // 2 * 4 + r % 32 // 8) * 2 + r % 2) * 32 + c % 32


def from_order(memory: np.ndarray, order: int) -> np.ndarray:
    """The matrices [..., rows, columns] whose memory, read in order, has the elements of ``memory``."""
    at = places(order, *memory.shape[-2:])
    return memory.reshape(*memory.shape[:-2], at.size)[..., at]


def to_order(matrix: np.ndarray, order: int) -> np.ndarray:
    """An array of ``matrix``'s shape whose memory holds its matrices in ``order``."""
    flat = np.empty((*matrix.shape[:-2], matrix.shape[-2] * matrix.shape[-1]), matrix.dtype)
    flat[..., places(order, *matrix.shape[-2:])] = matrix
    return flat.reshape(matrix.shape)


def weight(memory: np.ndarray, order: int) -> np.ndarray:
    """A weight [..., K, N] from its memory: column-major in COL, else its transpose in the order."""
    if order == COL:
        return from_order(memory, COL)
    swapped = memory.reshape(*memory.shape[:-2], memory.shape[-1], memory.shape[-2])
    return np.swapaxes(from_order(swapped, order), -1, -2)


def real_q_ordered_mat_mul(
    A: np.ndarray,
    scale_A: np.ndarray,
    B: np.ndarray,
    scale_B: np.ndarray,
    scale_Y: np.ndarray,
    bias: np.ndarray | None = None,
    C: np.ndarray | None = None,
    scale_C: np.ndarray | None = None,
    *,
    order_A: int,
    order_B: int,
    order_Y: int,
) -> np.ndarray:
    """QOrderedMatMul before rounding, as a matrix in row-major order."""

    def number(x: np.ndarray) -> np.ndarray:
        return np.asarray(x, np.float64)

    left = from_order(A, order_A).astype(np.float64)
    right = weight(B, order_B).astype(np.float64)
    x = np.matmul(left, right) * number(scale_A).reshape(()) * number(scale_B)
    if bias is not None:
        x = x + number(bias)
    if C is not None and scale_C is not None:
        x = x + number(scale_C).reshape(()) * from_order(C, order_Y).astype(np.float64)
    return (x / number(scale_Y).reshape(())).reshape(*A.shape[:-1], B.shape[-1])


@reference("QOrderedMatMul")
def q_ordered_mat_mul(
    A: np.ndarray,
    scale_A: np.ndarray,
    B: np.ndarray,
    scale_B: np.ndarray,
    scale_Y: np.ndarray,
    bias: np.ndarray | None = None,
    C: np.ndarray | None = None,
    scale_C: np.ndarray | None = None,
    *,
    order_A: int,
    order_B: int,
    order_Y: int,
) -> tuple[np.ndarray, ...]:
    """round((scale_A * scale_B * A @ B + bias + scale_C * C) / scale_Y), half to even, in int8."""
    y = real_q_ordered_mat_mul(
        A, scale_A, B, scale_B, scale_Y, bias, C, scale_C, order_A=order_A, order_B=order_B, order_Y=order_Y
    )
    return (to_order(np.clip(np.rint(y), -128, 127).astype(np.int8), order_Y),)
