"""The buffer pool under the garbage collector."""

from __future__ import annotations

import gc

import numpy as np

from webgpu_ops.core.device import Device
from webgpu_ops.core.tensor import Tensor


def test_tensors_in_reference_cycles_leave_usable_buffers(device: Device) -> None:
    """A collected cycle finalizes everything in it; the pooled GPU buffer must not be part of that."""

    class Holder:
        def __init__(self) -> None:
            self.tensor = Tensor.from_numpy(np.ones(4, np.float32), device)
            self.itself = self

    holder = Holder()
    uid = holder.tensor.buffer.uid
    del holder
    gc.collect()
    reused = [Tensor.from_numpy(np.full(4, 2, np.float32), device) for _ in range(64)]
    assert uid in {t.buffer.uid for t in reused}
    for tensor in reused:
        np.testing.assert_array_equal(tensor.numpy(), np.full(4, 2, np.float32))
