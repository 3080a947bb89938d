"""References of the LSTM operators: ONNX's own, with attention, and dynamically quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import reference

Array = np.ndarray
Function = Callable[[Array], Array]

# Per activation: its function of (x, alpha, beta), and the defaults of the parameters that it takes.
_ACTIVATIONS: dict[str, tuple[Callable[[Array, float, float], Array], tuple[float, ...]]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), ()),
    "tanh": (lambda x, a, b: np.tanh(x), ()),
    "sigmoid": (lambda x, a, b: np.exp(-np.logaddexp(0, -x)), ()),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), (0.01,)),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), (1.0,)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x, a, b: np.logaddexp(0, x), ()),
}


def _bind(formula: Callable[[Array, float, float], Array], alpha: float, beta: float) -> Function:
    return lambda x: formula(x, alpha, beta)


def _functions(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    directions: int,
) -> list[tuple[Function, Function, Function]]:
    """(f, g, h) of each direction; parameters are consumed by the functions that take them."""
    chosen: list[Function] = []
    alpha, beta = iter(alphas or ()), iter(betas or ())

    def take(values: Iterator[float], defaults: tuple[float, ...], which: int) -> float:
        return next(values, defaults[which]) if len(defaults) > which else 0.0

    for name in names or ["sigmoid", "tanh", "tanh"] * directions:
        formula, defaults = _ACTIVATIONS[name.lower()]
        chosen.append(_bind(formula, take(alpha, defaults, 0), take(beta, defaults, 1)))
    return [(chosen[3 * d], chosen[3 * d + 1], chosen[3 * d + 2]) for d in range(directions)]


@dataclass
class _Cell:
    """One direction: bias [4h] and peephole [3h] in the order i, o, f(, c)."""

    functions: tuple[Function, Function, Function]
    bias: Array
    peephole: Array
    clip: float | None
    input_forget: bool

    def step(self, gates: Array, c: Array) -> tuple[Array, Array]:
        """H and C after the gates' pre-activations [batch, 4h] (without bias) and the last C."""
        f, g, h = self.functions
        size = c.shape[1]
        i, o, forget, cell = np.split(gates + self.bias, 4, axis=1)
        p_i, p_o, p_f = (self.peephole[k * size : (k + 1) * size] for k in range(3))

        def bounded(x: Array) -> Array:
            return x if self.clip is None else np.clip(x, -self.clip, self.clip)

        i = f(bounded(i + p_i * c))
        forget = 1 - i if self.input_forget else f(bounded(forget + p_f * c))
        c = forget * c + i * g(bounded(cell))
        return f(bounded(o + p_o * c)) * h(c), c


def _unroll(
    cell: _Cell,
    projected: Array,
    recur: Callable[[Array], Array],
    lengths: Array,
    reverse: bool,
    h: Array,
    c: Array,
    after: Callable[[Array], None] = lambda h: None,
) -> tuple[Array, Array, Array]:
    """Y [steps, batch, h], and the last H and C, of one direction.

    ``projected`` [steps, batch, 4h] is the inputs' part of the gates and ``recur`` gives the
    states' part; it sees finished rows as 0. ``after`` sees each new H. A sequence of length 0 has
    no last value: its H and C are 0.
    """
    steps, batch, _ = projected.shape
    h, c = h.copy(), c.copy()
    y = np.zeros((steps, *h.shape))
    h[lengths == 0] = c[lengths == 0] = 0
    for s in range(steps):
        alive = lengths > s
        at = np.where(alive, lengths - 1 - s, 0) if reverse else np.full(batch, s)
        gates = projected[at, np.arange(batch)] + recur(np.where(alive[:, None], h, 0))
        new_h, new_c = cell.step(gates, c)
        h = np.where(alive[:, None], new_h, h)
        c = np.where(alive[:, None], new_c, c)
        y[at[alive], np.nonzero(alive)[0]] = h[alive]
        after(h)
    return y, h, c


def _times(weights: Array) -> Function:
    return lambda state: state @ weights


def _zeros(x: Array | None, *shape: int) -> Array:
    return np.zeros(shape) if x is None else x.astype(np.float64).reshape(shape)


def _reversed(direction: str) -> list[bool]:
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def _cells(
    B: Array | None,
    P: Array | None,
    hidden: int,
    directions: int,
    activations: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
    input_forget: int,
) -> list[_Cell]:
    functions = _functions(activations, alphas, betas, directions)
    bias = _zeros(B, directions, 2, 4 * hidden).sum(axis=1)
    peephole = _zeros(P, directions, 3 * hidden)
    return [_Cell(functions[d], bias[d], peephole[d], clip, bool(input_forget)) for d in range(directions)]


def _stack(runs: list[tuple[Array, Array, Array]], dtype: np.dtype) -> tuple[Array, Array, Array]:
    """Y [steps, directions, batch, h], Y_h and Y_c [directions, batch, h]."""
    y, h, c = zip(*runs, strict=True)
    return np.stack(y, axis=1).astype(dtype), np.stack(h).astype(dtype), np.stack(c).astype(dtype)


@reference("LSTM", domain="")
def lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Array, Array, Array]:
    """With ``layout`` 1 the batch comes first in X, Y and the states."""
    if layout:
        X = np.swapaxes(X, 0, 1)
        initial_h, initial_c = (None if s is None else np.swapaxes(s, 0, 1) for s in (initial_h, initial_c))
    steps, batch, _ = X.shape
    backward = _reversed(direction)
    dirs, hidden = len(backward), R.shape[2]
    x, w, r = (t.astype(np.float64) for t in (X, W, R))
    h, c = (_zeros(s, dirs, batch, hidden) for s in (initial_h, initial_c))
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens
    cells = _cells(B, P, hidden, dirs, activations, activation_alpha, activation_beta, clip, input_forget)
    runs = [
        _unroll(cells[d], x @ w[d].T, _times(r[d].T), lengths, backward[d], h[d], c[d]) for d in range(dirs)
    ]
    Y, Y_h, Y_c = _stack(runs, X.dtype)
    if layout:
        return Y.transpose(2, 0, 1, 3), np.swapaxes(Y_h, 0, 1), np.swapaxes(Y_c, 0, 1)
    return Y, Y_h, Y_c


class _Attention:
    """Bahdanau attention of one direction over the memory, and what it gave at the last step."""

    def __init__(
        self,
        QW: Array,
        MW: Array,
        V: Array,
        M: Array,
        lengths: Array,
        AW: Array | None,
        W: Array,
        R: Array,
    ) -> None:
        self.QW, self.V, self.M, self.AW = QW, V, M, AW
        self.keys = M @ MW
        self.valid = np.arange(M.shape[1]) < lengths[:, None]
        self.W, self.R = W, R
        self.state = np.zeros((len(M), M.shape[2] if AW is None else AW.shape[1]))

    def recur(self, h: Array) -> Array:
        """What H and the attention after the step before add to the gates."""
        return h @ self.R.T + self.state @ self.W.T

    def update(self, h: Array) -> None:
        score = np.sum(self.V * np.tanh(self.keys + (h @ self.QW)[:, None, :]), axis=2)
        score = np.where(self.valid, score, -np.inf)
        top = np.max(score, axis=1, keepdims=True, initial=-np.finfo(np.float64).max)
        weight = np.exp(score - top)
        total = weight.sum(axis=1, keepdims=True)
        align = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        context = np.einsum("bm,bmd->bd", align, self.M)
        self.state = context if self.AW is None else np.concatenate([h, context], axis=1) @ self.AW


@reference("AttnLSTM")
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
) -> tuple[Array, Array, Array]:
    """Each step's input is X_t with the attention of the step before (at first 0) behind it."""
    assert QW is not None and MW is not None and V is not None and M is not None
    steps, batch, width = X.shape
    backward = _reversed(direction)
    dirs, hidden = len(backward), R.shape[2]
    x, w, r, qw, mw, v, m = (t.astype(np.float64) for t in (X, W, R, QW, MW, V, M))
    h, c = (_zeros(s, dirs, batch, hidden) for s in (initial_h, initial_c))
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens
    memory = np.full(batch, M.shape[1]) if memory_seq_lens is None else memory_seq_lens
    cells = _cells(B, P, hidden, dirs, activations, activation_alpha, activation_beta, clip, input_forget)
    runs = []
    for d in range(dirs):
        aw = None if AW is None else AW[d].astype(np.float64)
        attention = _Attention(qw[d], mw[d], v[d], m, memory, aw, w[d][:, width:], r[d])
        runs.append(
            _unroll(
                cells[d],
                x @ w[d][:, :width].T,
                attention.recur,
                lengths,
                backward[d],
                h[d],
                c[d],
                attention.update,
            )
        )
    return _stack(runs, X.dtype)


@dataclass
class Rounding:
    """How close quantized values came to a tie between two integers, in steps: 0.5 at best."""

    margin: float = 0.5

    def round(self, x: Array) -> Array:
        if x.size:
            self.margin = min(self.margin, float(np.abs(x - np.floor(x) - 0.5).min()))
        return np.rint(x)


def _quantized(x: Array, rounding: Rounding) -> tuple[Array, float]:
    """x as integers around its zero point (as in DynamicQuantizeLinear), and their scale."""
    low, high = min(0.0, x.min(initial=0.0)), max(0.0, x.max(initial=0.0))
    scale = (high - low) / 255 if high > low else 1.0
    zero = np.clip(rounding.round(np.array(-low / scale)), 0, 255)
    return np.clip(rounding.round(x / scale) + zero, 0, 255) - zero, scale


def _centred(codes: Array, zero: Array | None, d: int) -> Array:
    """Integer weights of direction ``d`` minus their zero points, one a column or one for all."""
    return codes[d].astype(np.float64) - (0.0 if zero is None else zero[d].astype(np.float64))


@reference("DynamicQuantizeLSTM")
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
    rounding: Rounding | None = None,
) -> tuple[Array, Array, Array]:
    """X is quantized once over the whole tensor, H at each step over the whole batch of a direction.

    ``rounding`` (not an attribute) notes how close a value came to a rounding tie.
    """
    assert W_scale is not None and R_scale is not None
    rounding = rounding or Rounding()
    steps, batch, _ = X.shape
    backward = _reversed(direction)
    dirs, hidden = len(backward), R.shape[1]
    h, c = (_zeros(s, dirs, batch, hidden) for s in (initial_h, initial_c))
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens
    cells = _cells(B, P, hidden, dirs, activations, activation_alpha, activation_beta, clip, input_forget)
    x, x_scale = _quantized(X.astype(np.float64), rounding)
    runs = []
    for d in range(dirs):
        w, r = _centred(W, W_zero_point, d), _centred(R, R_zero_point, d)
        w_scale, r_scale = W_scale[d].astype(np.float64), R_scale[d].astype(np.float64)

        def recur(state: Array, r: Array = r, r_scale: Array = r_scale) -> Array:
            codes, scale = _quantized(state, rounding)
            return (codes @ r) * (scale * r_scale)

        projected = (x @ w) * (x_scale * w_scale)
        runs.append(_unroll(cells[d], projected, recur, lengths, backward[d], h[d], c[d]))
    return _stack(runs, X.dtype)
