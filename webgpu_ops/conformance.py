"""Stored one-node cases and random calls, run on a device and judged.

A *case* is a folder in the layout of ONNX's node tests: ``model.onnx``, ``test_data_set_0`` with
``input_<i>.pb``, ``output_<i>.pb`` and optional ``ignore_<i>.npy`` masks, and ``meta.json`` with the
tolerances and what kind of judgement applies. The cases of one operator lie in a folder or a zip
named after it: ``BiasGelu``, or ``Attention@ai.onnx`` for an operator of the standard domain.

A *sample* is a random valid call drawn by :mod:`webgpu_ops.reference.samples`, judged by the NumPy
reference.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from . import backend
from .compare import EXACT, TOLERANCES, Comparison, Tolerance, compare
from .errors import ModelError, UnsupportedError, WebGpuOpsError
from .schema.signatures import python_name

if TYPE_CHECKING:
    from .core.device import Device
    from .reference.samples import Sample

STANDARD = "ai.onnx"


@dataclass(frozen=True)
class Outcome:
    """Whether a case or sample passed, what was wrong, and the worst of all its comparisons."""

    passed: bool
    message: str = ""
    error: float = 0.0
    used: float = 0.0


def qualified(op: str, domain: str) -> str:
    """``BiasGelu``, or ``Attention@ai.onnx`` outside com.microsoft."""
    return op if domain == "com.microsoft" else f"{op}@{domain or STANDARD}"


def split_qualified(name: str) -> tuple[str, str]:
    """(operator, domain) of a name that :func:`qualified` made; the standard domain is ''."""
    op, at, domain = name.partition("@")
    return op, ("" if domain == STANDARD else domain) if at else "com.microsoft"


# Stored cases


@dataclass(frozen=True)
class Case:
    """One stored case of ``operator`` (a qualified name); files are read when asked for."""

    operator: str
    name: str
    folder: Path | zipfile.Path

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads(self._read("meta.json"))

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.load_model_from_string(self._read("model.onnx"))

    @property
    def inputs(self) -> list[Any]:
        """The graph inputs in order: arrays, or SparseTensors where the case says so."""
        sparse = self.meta.get("sparse_inputs", {})
        return [
            self._sparse(i, sparse[str(i)]) if str(i) in sparse else self._array(f"input_{i}.pb")
            for i in range(len(self.model.graph.input))
        ]

    @property
    def outputs(self) -> list[np.ndarray]:
        """The expected graph outputs in order."""
        return [self._array(f"output_{i}.pb") for i in range(len(self.model.graph.output))]

    def ignored(self, i: int) -> np.ndarray | None:
        """True where output ``i`` is unspecified, or None."""
        file = self.folder / "test_data_set_0" / f"ignore_{i}.npy"
        return np.load(io.BytesIO(file.read_bytes())) if file.exists() else None

    def tolerance(self, dtype: np.dtype) -> Tolerance:
        """(rtol, atol) for an output of ``dtype``."""
        rtol, atol = self.meta.get("tolerance", {}).get(dtype.name, (self.meta["rtol"], self.meta["atol"]))
        return float(rtol), float(atol)

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _array(self, name: str) -> np.ndarray:
        tensor = onnx.TensorProto.FromString(self._read(f"test_data_set_0/{name}"))
        return numpy_helper.to_array(tensor)

    def _sparse(self, i: int, form: str) -> Any:
        from . import SparseTensor

        if form == "csr":
            data = np.load(io.BytesIO(self._read(f"test_data_set_0/input_{i}.npz")))
            shape = tuple(int(d) for d in data["dense_shape"])
            return SparseTensor.from_csr(data["values"], data["col_indices"], data["row_offsets"], shape)
        proto = onnx.SparseTensorProto.FromString(self._read(f"test_data_set_0/input_{i}.pb"))
        values, indices = numpy_helper.to_array(proto.values), numpy_helper.to_array(proto.indices)
        return SparseTensor.from_coo(values, indices, tuple(proto.dims))


def load_cases(root: Path | str) -> list[Case]:
    """All cases under ``root``: a zip or folder of one operator's cases, or a folder of these."""
    root = Path(root)
    if not root.exists():
        raise ModelError(f"no cases: {root} does not exist")
    cases = [case for group in _groups(root) for case in _cases(*group)]
    if not cases:
        raise ModelError(f"no cases: {root} holds neither <Operator>.zip nor <Operator>/<case>/meta.json")
    return cases


def _groups(root: Path) -> Iterator[tuple[str, Path | zipfile.Path]]:
    """(operator, folder of its cases) pairs."""
    if root.suffix == ".zip" or root.is_file():
        yield root.stem, _open_zip(root)
    elif any(root.glob("*/meta.json")):
        yield root.name, root
    else:
        for entry in sorted(root.iterdir()):
            if entry.suffix == ".zip":
                yield entry.stem, _open_zip(entry)
            elif any(entry.glob("*/meta.json")):
                yield entry.name, entry


def _open_zip(path: Path) -> zipfile.Path:
    try:
        return zipfile.Path(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError) as error:
        raise ModelError(f"no cases: {path} is not a zip file ({error})") from None


def _cases(operator: str, folder: Path | zipfile.Path) -> Iterator[Case]:
    entries: list[Any] = list(folder.iterdir())
    for entry in sorted(entries, key=lambda e: e.name):
        if (entry / "meta.json").exists():
            yield Case(operator, entry.name, entry)


def run_case(case: Case, device: Device) -> Outcome:
    """Run ``case`` on ``device`` through :mod:`webgpu_ops.backend` and judge what comes back.

    Errors of this package become a failed outcome. Anything else that is raised is a defect of the
    package; it fails too, with its type in the message.
    """
    meta = case.meta
    try:
        got = [np.asarray(v) for v in backend.prepare(case.model, device=device).run(case.inputs)]
    except WebGpuOpsError as error:
        if not meta["expect_error"]:
            return Outcome(False, f"refused: {error}")
        return Outcome(bool(str(error).strip()), "" if str(error).strip() else "refused without a message")
    except Exception as error:
        return Outcome(False, f"raised {type(error).__name__}, not an error of this package: {error}")
    if meta["expect_error"]:
        return Outcome(False, "accepted; expected an error")
    if meta.get("check") == "dropout":
        return _check_dropout(case, got, device)
    names = [o.name for o in case.model.graph.output]
    want = case.outputs
    if len(got) != len(want):
        return Outcome(False, f"returned {len(got)} outputs; expected {len(want)}")
    return judge(
        (
            name,
            compare(
                g, w, case.tolerance(w.dtype), ignore=case.ignored(i), bitwise=meta.get("bitwise", False)
            ),
        )
        for i, (name, g, w) in enumerate(zip(names, got, want, strict=True))
    )


def judge(comparisons: Iterator[tuple[str, Comparison]]) -> Outcome:
    """One outcome for all outputs of a call, given as (output name, comparison) pairs."""
    pairs = list(comparisons)
    wrong = [f"{name} {c.message}" for name, c in pairs if not c.agrees]
    error, used = (max((getattr(c, key) for _, c in pairs), default=0.0) for key in ("error", "used"))
    return Outcome(not wrong, "; ".join(wrong), error, used)


def _check_dropout(case: Case, got: Sequence[np.ndarray], device: Device) -> Outcome:
    """Random dropout has no expected output, only properties.

    Each element is (data + bias) * scale + residual or residual alone, the mask says which, and the
    dropped fraction lies within five standard deviations of the ratio.
    """
    meta = case.meta
    inputs = case.inputs

    def operand(key: str) -> np.ndarray | float:
        index = meta.get(key)
        return 0.0 if index is None else inputs[index].astype(np.float64)

    y, mask = got[0], _kept(got[meta["mask_output"]], meta["mask_kind"], got[0].shape)
    if mask is None:
        return Outcome(False, f"the mask has shape {got[meta['mask_output']].shape}, unfit for {y.shape}")
    residual = operand("residual")
    kept = (operand("data") + operand("bias")) * meta["scale"] + residual
    want = np.where(mask, kept, residual).astype(y.dtype)
    verdict = compare(y, want, case.tolerance(y.dtype))
    if not verdict.agrees:
        return Outcome(False, f"output {verdict.message}", verdict.error, verdict.used)
    dropped, ratio = 1 - mask.mean(), meta["ratio"]
    sigma = float(np.sqrt(ratio * (1 - ratio) / mask.size))
    if abs(dropped - ratio) > 5 * sigma:
        return Outcome(False, f"dropped {dropped:.4f} of all elements; expected {ratio} +- {5 * sigma:.4f}")
    if meta["seeded"]:
        again = backend.prepare(case.model, device=device).run(inputs)
        if not compare(np.asarray(again[0]), y, bitwise=True).agrees:
            return Outcome(False, "the same seed gave another result in a fresh session")
    return Outcome(True, "", verdict.error, verdict.used)


def _kept(mask: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The mask as bools of ``shape``; a bitmask32 holds element i in bit i % 32 of word i // 32."""
    if kind == "bool":
        return mask if mask.shape == shape and mask.dtype == np.bool_ else None
    size = int(np.prod(shape))
    if mask.dtype != np.uint32 or mask.size != -(-size // 32):
        return None
    bits = (mask.reshape(-1, 1) >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return bits.reshape(-1)[:size].reshape(shape).astype(bool)


# Random calls


def check_sample(op: str, sample: Sample, device: Device | None = None) -> Outcome:
    """Run one random call of ``op`` on ``device`` and compare it with the NumPy reference.

    The tolerance goes by each output's type (:data:`webgpu_ops.compare.TOLERANCES`) unless the sample
    sets its own. A refusal fails: samples are valid calls.
    """
    from . import Tensor, reference, run, schema

    function = reference.find(op, sample.domain)
    if function is None:
        raise UnsupportedError(f"{op}: no reference of {sample.domain or STANDARD}:{op}")
    declared = schema.find(op, sample.domain, sample.opset)
    wanted = sample.outputs or declared.required_outputs
    inputs = {name: value for name, value in sample.inputs.items() if value is not None}
    arguments = {python_name(name): value for name, value in inputs.items()}
    expected = dict(
        zip((p.name for p in declared.outputs), function(**arguments, **sample.attributes), strict=False)
    )
    # An output that updates an input in place is bound to that input's allocation.
    shared = {name: Tensor.from_numpy(inputs[name], device) for name in set(sample.aliases.values())}
    bound = {name: shared.get(sample.aliases.get(name, "")) for name in wanted}
    try:
        results = run(
            op,
            {**inputs, **shared},
            sample.attributes,
            domain=sample.domain,
            opset=sample.opset,
            outputs=bound,
            device=device,
        )
    except WebGpuOpsError as error:
        return Outcome(False, f"refused: {error}")
    got = {
        name: r for name, r in zip((p.name for p in declared.outputs), results, strict=False) if r is not None
    }
    return judge((name, _compare_output(name, got, expected, sample)) for name in wanted)


def _compare_output(
    name: str, got: Mapping[str, Any], expected: Mapping[str, Any], sample: Sample
) -> Comparison:
    if name not in got:
        return Comparison("is missing")
    want = np.asarray(expected[name])
    tolerance = sample.tolerance or TOLERANCES.get(want.dtype.name, EXACT)
    ignore = sample.unspecified.get(name)
    return compare(got[name].numpy(), want, tolerance, ignore=ignore, bitwise=sample.exact)
