"""MurmurHash3 against published values, and how strings come to the device."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import SchemaError, ShapeError, UnsupportedError
from webgpu_ops.families import hashing
from webgpu_ops.reference.hashing import murmur_hash3

# From the SMHasher test suite and the algorithm's encyclopedia entry.
KNOWN = [
    ("", 0, 0),
    ("", 1, 0x514E28B7),
    ("", 0xFFFFFFFF, 0x81F16F39),
    ("test", 0, 0xBA6BD213),
    ("test", 0x9747B28C, 0x704B81DC),
    ("Hello, world!", 0, 0xC0363E43),
    ("Hello, world!", 0x9747B28C, 0x24884CBA),
    ("The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723),
    ("The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ("a", 0x9747B28C, 0x7FA09EA6),
    ("aa", 0x9747B28C, 0x5D211726),
    ("aaa", 0x9747B28C, 0x283E0130),
    ("aaaa", 0x9747B28C, 0x5A97808A),
    ("ππππππππ", 0x9747B28C, 0xD58063C1),
]


def strings(*values: str | bytes) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize("seed", sorted({seed for _, seed, _ in KNOWN}))
def test_published_values(device: Device, seed: int) -> None:
    known = [(text, want) for text, s, want in KNOWN if s == seed]
    (got,) = run("MurmurHash3", [strings(*(t for t, _ in known))], {"seed": seed}, device=device)
    assert got is not None
    np.testing.assert_array_equal(got.numpy(), np.array([w for _, w in known], np.uint32))


def test_numbers_hash_like_their_bytes(device: Device) -> None:
    data = np.frombuffer(np.random.default_rng(0).bytes(64), np.uint8)
    for dtype in (np.int32, np.uint32, np.float32, np.int64, np.uint64, np.float64):
        (got,) = run("MurmurHash3", [data.view(dtype)], {"positive": 0, "seed": 9}, device=device)
        pairs = data.reshape(-1, np.dtype(dtype).itemsize)
        words = pairs.view("<u4")
        columns = [np.ascontiguousarray(words[:, k]) for k in range(words.shape[1])]
        assert got is not None and got.dtype == dtypes.int32
        if len(columns) == 1:
            (same,) = run("MurmurHash3", [columns[0]], {"positive": 0, "seed": 9}, device=device)
        else:
            low, high = np.uint64(columns[0]), np.uint64(columns[1])
            (same,) = run(
                "MurmurHash3", [low | high << np.uint64(32)], {"positive": 0, "seed": 9}, device=device
            )
        assert same is not None
        np.testing.assert_array_equal(got.numpy(), same.numpy())


def test_bytes_hash_as_they_are(device: Device) -> None:
    (a,) = run("MurmurHash3", [strings("grün", "")], device=device)
    (b,) = run("MurmurHash3", [strings("grün".encode(), b"")], device=device)
    assert a is not None and b is not None
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_the_device_hashes_and_the_host_only_encodes() -> None:
    made = plan("MurmurHash3", [strings("abc", "defgh")])
    assert [d.template for d in made.dispatches] == ["hashing/murmur"]
    text, starts, lengths = made.constants
    assert text.tobytes() == b"abc\0defgh\0\0\0"
    np.testing.assert_array_equal(starts, [0, 1])
    np.testing.assert_array_equal(lengths, [3, 5])


def test_texts_share_one_pipeline_and_a_known_text_one_upload(device: Device) -> None:
    run("MurmurHash3", [strings("warm", "up")], device=device)
    programs = len(device.programs)
    for texts in (("x",), ("longer texts", "of", "several", "lengths"), ()):
        run("MurmurHash3", [strings(*texts)], device=device)
    assert len(device.programs) == programs
    uploads = device.stats.uploads
    (again,) = run("MurmurHash3", [strings("warm", "up")], device=device)
    assert device.stats.uploads == uploads
    (fresh,) = run("MurmurHash3", [strings("cold", "up")], device=device)
    assert again is not None and fresh is not None
    assert (again.numpy() == fresh.numpy()).tolist() == [False, True]


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_has_32_bits(seed: int) -> None:
    with pytest.raises(SchemaError, match=f"MurmurHash3: seed is {seed}"):
        plan("MurmurHash3", [TensorSpec((2,), dtypes.int32)], {"seed": seed})


def test_text_that_utf8_cannot_hold() -> None:
    with pytest.raises(ShapeError, match=r"MurmurHash3: X holds '\\ud800' at element 1"):
        plan("MurmurHash3", [strings("fine", "\ud800")])


@pytest.mark.parametrize(
    ("values", "came"),
    [
        (["a", 3], r"3 of type int at \[1\]"),
        ([1.5, None, [1]], r"1\.5 of type float at \[0\]"),
        (["a", [1]], r"\[1\] of type list at \[1\]"),
        ([["a", b"b"], ["c", None]], r"None of type NoneType at \[1, 1\]"),
        (2, r"2 of type int at \[\]"),
    ],
)
def test_objects_that_are_no_text(device: Device, values: object, came: str) -> None:
    array = np.array(values, object)
    message = f"MurmurHash3: input X holds {came}; expected str or bytes"
    with pytest.raises(SchemaError, match=message):
        plan("MurmurHash3", [array])
    text = np.full(array.shape, "text", object)
    run("MurmurHash3", [text], device=device)  # now there is a plan to look up for this shape
    with pytest.raises(SchemaError, match=message):
        run("MurmurHash3", [array], device=device)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 has no strings of its own")
def test_numpys_own_strings_are_told_apart_by_their_text(device: Device) -> None:
    for text in ("a" * 40, "b" * 40):
        array = np.array([text], np.dtypes.StringDType())
        (got,) = run("MurmurHash3", [array], device=device)
        assert got is not None
        np.testing.assert_array_equal(got.numpy(), murmur_hash3(array)[0])


def test_objects_where_numbers_belong() -> None:
    with pytest.raises(SchemaError, match=r"ScaledSiLU: .*X.*string"):
        plan("ScaledSiLU", [np.array([1.0, 2.0], object)])


def test_strings_have_to_be_known_while_planning() -> None:
    with pytest.raises(UnsupportedError, match="MurmurHash3: planning needs the value of X"):
        plan("MurmurHash3", [TensorSpec((2,), dtypes.string)])


def test_an_empty_tensor(device: Device) -> None:
    (got,) = run("MurmurHash3", [Tensor.from_numpy(np.zeros((0, 3), np.int64), device)], device=device)
    assert got is not None and got.shape == (0, 3)


def test_long_texts_are_hashed_in_parts(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["π" * (n // 2) + "x" * (n % 2) for n in (0, 3, 15, 16, 17, 31, 32, 33, 100)]
    (want,) = murmur_hash3(strings(*texts), seed=7)
    monkeypatch.setattr(hashing, "MAX_ROUNDS", 4)  # words a dispatch
    dispatches = device.stats.dispatches
    (got,) = run("MurmurHash3", [strings(*texts)], {"seed": 7}, device=device)
    assert got is not None and device.stats.dispatches == dispatches + 7
    np.testing.assert_array_equal(got.numpy(), want)


def test_a_text_longer_than_an_invocation_may_walk(device: Device) -> None:
    texts = strings("a" * 300_000, "short")
    (got,) = run("MurmurHash3", [texts], device=device)
    assert got is not None
    np.testing.assert_array_equal(got.numpy(), murmur_hash3(texts)[0])
