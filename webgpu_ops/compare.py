"""Whether two arrays agree, in words a person can act on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Tolerance = tuple[float, float]
EXACT: Tolerance = (0.0, 0.0)

# (rtol, atol) by the type of the compared output: a few units in its last place plus the error of
# sums made in float32. Types that are missing here (integers, float8, bool, string) compare equal.
TOLERANCES: dict[str, Tolerance] = {
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "float16": (1e-3, 1e-3),
    "bfloat16": (8e-3, 8e-3),
    "float64": (1e-9, 1e-10),
    "complex128": (1e-9, 1e-10),
}


@dataclass(frozen=True)
class Comparison:
    """``message`` is empty where the arrays agree.

    ``error`` is the largest finite |got - want|, ``used`` the largest share of the tolerance that any
    element used up: 1 is the limit.
    """

    message: str = ""
    error: float = 0.0
    used: float = 0.0

    @property
    def agrees(self) -> bool:
        return not self.message


def compare(
    got: np.ndarray,
    want: np.ndarray,
    tolerance: Tolerance = EXACT,
    *,
    ignore: np.ndarray | None = None,
    bitwise: bool = False,
) -> Comparison:
    """Compare element by element: |got - want| <= atol + rtol * |want|.

    Shapes and types must be equal, NaN equals NaN, an infinity equals only itself. A tolerance of
    (0, 0) asks for equal values, ``bitwise`` for equal bytes. Elements where ``ignore`` (bool, of
    the same shape) is True are left out.
    """
    if got.shape != want.shape:
        return Comparison(f"has shape {got.shape}; expected {want.shape}")
    # Any string type equals any other: NumPy has several.
    text = got.dtype.kind in "OUST" and want.dtype.kind in "OUST"
    if got.dtype != want.dtype and not text:
        return Comparison(f"has type {got.dtype}; expected {want.dtype}")
    if text:
        return _report(got, want, got.astype(object) != want.astype(object), ignore, tolerance)
    if bitwise:
        return _report(got, want, _bytes(got) != _bytes(want), ignore, EXACT)
    if tolerance == EXACT and want.dtype.kind in "biu":
        return _report(got, want, got != want, ignore, tolerance)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        g, w = _wide(got), _wide(want)
        distance = np.abs(g - w)
        allowed = tolerance[1] + tolerance[0] * np.abs(w)
        finite = np.isfinite(g) & np.isfinite(w)
        good = (g == w) | (finite & (distance <= allowed)) | (np.isnan(g) & np.isnan(w))
        counted = finite if ignore is None else finite & ~ignore
        error = float(distance[counted].max(initial=0.0))
        used = float((distance / allowed)[counted & (distance > 0)].max(initial=0.0))
    return replace(_report(got, want, ~good, ignore, tolerance), error=error, used=used)


def _wide(array: np.ndarray) -> np.ndarray:
    """The same numbers in a type that holds them, so that differences don't round or wrap."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Each element's bytes as one comparable item."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (
        flat.reshape(array.size, array.dtype.itemsize).view(f"V{array.dtype.itemsize}").reshape(array.shape)
    )


def _report(
    got: np.ndarray, want: np.ndarray, bad: np.ndarray, ignore: np.ndarray | None, tolerance: Tolerance
) -> Comparison:
    bad = np.asarray(bad, dtype=bool)
    if ignore is not None:
        bad = bad & ~ignore
    count = int(bad.sum())
    if count == 0:
        return Comparison()
    where = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    g, w = got[where], want[where]
    rtol, atol = tolerance
    allowed = f"; allowed {atol:g} + {rtol:g} * |expected|" if tolerance != EXACT else ""
    return Comparison(
        f"differs in {count} of {bad.size} values, first at {list(where)}: got {g!r}, expected {w!r}{allowed}"
    )
