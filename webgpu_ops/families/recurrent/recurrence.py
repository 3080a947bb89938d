"""The linear recurrence that linear attention and the gated delta operators share.

For one value head, with state S [dk, dv] and ``rate`` 1 unless a delta rule retrieves::

    S = exp(g) S + k (rate (v - exp(g) S^T k))^T        o = scale S^T q

*Recurrent*: one dispatch (on a software adapter one every few hundred tokens), the state in
registers; short sequences and decoding. *Chunked*: two dispatches, whatever the length. The first
solves each chunk's triangular system (the WY form) for all chunks at once, the second walks the
chunks with products of matrices. Where the states after the last few tokens are wanted, a third goes
over these token by token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.dtypes import float32
from ...core.plan import MAX_ROUNDS, Builder, Slot

RULES = ("linear", "gated", "delta", "gated_delta")
CHUNKED_FROM = 64  # tokens from which the chunks' fixed cost pays
STATE_FLOATS = 2048  # of the chunked path's state tile: half of any adapter's workgroup memory


@dataclass(frozen=True)
class Rows:
    """Where a token's heads lie in a tensor: packed QKV is one tensor with three of these."""

    slot: Slot
    offset: int
    stride: int


@dataclass(frozen=True)
class Recurrence:
    """A call, whatever operator it came from. ``decay`` and ``beta`` are None where unused.

    ``length`` is every request's token count, or None if ``cu_seqlens`` says so on the device.
    There is a state for each value head: [batch, heads_v, dv, dk], or dk before dv if ``k_major``.
    Neighbouring value heads share a key head; query heads are fewer, or several read one state:
    ``heads_q`` divides ``heads_v`` or is a multiple of it. ``decay`` is [tokens, heads_v] or,
    ``per_key``, [tokens, heads_v, dk]; ``beta`` is [tokens, heads_v] or [tokens, 1].

    ``initial_state`` and ``final_state`` may hold several such states in a row: the call starts from
    number ``initial_slot`` and leaves ``window`` states, the last ones it went through, right-aligned
    and zero in front where it has fewer tokens.
    """

    query: Rows
    key: Rows
    value: Rows
    tokens: int
    batch: int
    length: int | None
    heads_q: int
    heads_k: int
    heads_v: int
    dk: int
    dv: int
    scale: float
    retrieves: bool
    l2_norm: bool
    sigmoid_beta: bool
    per_key: bool
    capacity: int
    chunk_size: int
    cu_seqlens: Slot | None
    decay: Slot | None
    beta: Slot | None
    initial_state: Slot | None
    a_log: Slot | None
    dt_bias: Slot | None
    capture_count: Slot | None
    output: Slot
    final_state: Slot | None
    state_update: Slot | None
    k_major: bool = False
    window: int = 1
    initial_slot: int = 0
    first: int = 0
    """Tokens of each request that another part of the call has dealt with."""

    @property
    def longest(self) -> int:
        """No request has more tokens."""
        return self.tokens if self.length is None else self.length

    @property
    def queries(self) -> int:
        """Query heads that read one state; their outputs lie side by side."""
        return max(1, self.heads_q // self.heads_v)

    @property
    def state_size(self) -> int:
        """Elements of one state of all requests."""
        return self.batch * self.heads_v * self.dk * self.dv

    @property
    def chunk(self) -> int:
        """Tokens a chunk: 32, or 16 where the node asks for that few."""
        return 16 if self.chunk_size <= 16 else 32

    @property
    def slots(self) -> int:
        """Chunks that hold the tokens however they are spread over the requests."""
        return self.tokens // self.chunk + self.batch

    @property
    def work_floats(self) -> int:
        return self.slots * self.heads_v * self.queries * (2 * self.chunk**2 + 4 * self.chunk)

    def prefers_chunks(self, b: Builder) -> bool:
        """Whether the chunked path can take this call and is worth it.

        Ragged lengths are known to the device alone: the longest possible one decides, unless the
        average is so short that most of each chunk would be empty. On a software adapter the
        barriers cost more than the products save.
        """
        longest = self.tokens - self.batch + 1 if self.length is None else self.length
        return (
            b.caps.device_class == "gpu"
            and longest >= CHUNKED_FROM
            and self.tokens >= 16 * self.batch
            and not self.per_key
            and self.state_update is None
            and self.dk <= STATE_FLOATS // 4
            and self.work_floats * 4 <= b.caps.max_binding_bytes
        )

    def plan(self, b: Builder) -> None:
        """Append the dispatches of the path that fits, and name it."""
        head = self
        if self.window > 1:
            assert self.length is not None
            head = replace(self, length=max(0, self.length - self.window))
        if head.length == 0 or not head.prefers_chunks(b):
            b.path = "recurrent"
            self._recurrent(b)
            return
        b.path = "chunked"
        if head is self:
            self._chunked(b)
            return
        # Between the parts the state is not rounded, whatever type the caller's has.
        between = b.scratch("between", (self.batch, self.heads_v, self.dk, self.dv), float32)
        replace(head, final_state=between, window=1)._chunked(b)
        replace(
            self, first=head.length or 0, length=self.window, initial_state=between, initial_slot=0
        )._recurrent(b)

    def _geometry(self) -> dict[str, int | float]:
        return {
            "tokens": self.tokens,
            "batch": self.batch,
            "length": self.longest,
            "pitch": self.tokens // max(self.batch, 1),
            "first": self.first,
            "heads_v": self.heads_v,
            "queries": self.queries,
            "query_sharing": self.heads_v * self.queries // self.heads_q,
            "key_sharing": self.heads_v // self.heads_k,
            "dk": self.dk,
            "dv": self.dv,
            "initial_at": self.initial_slot * self.state_size,
            "rates": self.beta.shape[-1] if self.beta else 0,
            "scale": float(self.scale),
            "query_offset": self.query.offset,
            "query_stride": self.query.stride,
            "key_offset": self.key.offset,
            "key_stride": self.key.stride,
            "value_offset": self.value.offset,
            "value_stride": self.value.stride,
        }

    def _recurrent(self, b: Builder) -> None:
        """One walk through the tokens; on a software adapter several, if they exceed its rounds."""
        parts, channels = self._sharing(b)

        def terms(count: int) -> int:
            return -(-count // parts) * (parts + 1)

        rounds = 2 * channels + terms(11) + 24 + (self.queries - 1) * (channels + terms(5) + 12)
        if self.state_update is not None:
            rounds += 3 * channels + 16
        cpu = b.caps.device_class == "cpu"
        most = max(MAX_ROUNDS // rounds, self.window) if cpu else self.longest
        part, done = self, 0
        if self.longest > most:
            # Between the walks the state is not rounded, whatever type the caller's has.
            between = b.scratch("between", (self.batch, self.heads_v, self.dk, self.dv), float32)
            while self.longest - done > most:
                # The last walk leaves the states of the whole window.
                count = min(most, self.longest - done - self.window)
                replace(part, length=count, final_state=between, window=1)._walk(b)
                done += count
                part = replace(
                    self,
                    first=self.first + done,
                    length=self.longest - done,
                    initial_state=between,
                    initial_slot=0,
                )
        part._walk(b)

    def _sharing(self, b: Builder) -> tuple[int, int]:
        """How many lanes share a state's columns, and the key channels of each."""
        # Key channels a lane: few make barriers dear, many overflow a GPU's registers.
        wanted = 16 if b.caps.device_class == "cpu" else 8
        parts = 1
        while parts < 32 and parts * wanted < self.dk:
            parts *= 2
        return parts, -(-self.dk // (parts * 4)) * 4  # rounded, so that near head sizes share a pipeline

    def _walk(self, b: Builder) -> None:
        parts, channels = self._sharing(b)
        workgroup = 64
        quads = -(-self.dv // 4)
        if parts > 1:  # lanes that meet at a barrier must walk the same tokens
            quads = -(-quads * parts // workgroup) * workgroup // parts
        b.dispatch(
            "recurrent/recurrent",
            reads={
                "query": self.query.slot,
                "key": self.key.slot,
                "value": self.value.slot,
                "cu_seqlens": self.cu_seqlens,
                "decay": self.decay,
                "beta": self.beta,
                "initial_state": self.initial_state,
                "a_log": self.a_log,
                "dt_bias": self.dt_bias,
                "capture_count": self.capture_count if self.state_update else None,
            },
            writes={
                "output": self.output,
                "final_state": self.final_state,
                "state_update": self.state_update,
            },
            uniforms={
                **self._geometry(),
                "quads": quads,
                "capacity": self.capacity,
                "window": self.window,
                "state_size": self.state_size,
            },
            constants={
                "parts": parts,
                "channels": channels,
                "several": self.queries > 1,
                "k_major": self.k_major,
                "windowed": self.window > 1,
                "retrieves": self.retrieves,
                "l2_norm": self.l2_norm,
                "sigmoid_beta": self.sigmoid_beta,
                "per_key": self.per_key,
            },
            threads=self.batch * self.heads_v * quads * parts,
            workgroup=workgroup,
        )

    def _chunked(self, b: Builder) -> None:
        rows = -(-self.dk // 16) * 16
        quads = 1  # four-column groups whose state fits the tile
        while quads < 4 and quads * 8 * rows <= STATE_FLOATS and quads * 4 < self.dv:
            quads *= 2
        tiles = -(-self.dv // (quads * 4))
        work = b.scratch("chunks", (self.work_floats,), float32)
        geometry = self._geometry()
        b.dispatch(
            "recurrent/chunk_prepare",
            reads={
                "query": self.query.slot,
                "key": self.key.slot,
                "cu_seqlens": self.cu_seqlens,
                "decay": self.decay,
                "beta": self.beta,
                "a_log": self.a_log,
                "dt_bias": self.dt_bias,
            },
            writes={"work": work},
            uniforms={**geometry, "slots": self.slots},
            constants={
                "chunk": self.chunk,
                "retrieves": self.retrieves,
                "l2_norm": self.l2_norm,
                "sigmoid_beta": self.sigmoid_beta,
                "per_key": False,
            },
            groups=self.slots * self.heads_v * self.queries,
            workgroup=64,
        )
        b.dispatch(
            "recurrent/chunk_scan",
            reads={
                "query": self.query.slot,
                "key": self.key.slot,
                "value": self.value.slot,
                "cu_seqlens": self.cu_seqlens,
                "initial_state": self.initial_state,
                "work": work,
            },
            writes={"output": self.output, "final_state": self.final_state},
            uniforms={**geometry, "tiles": tiles},
            constants={
                "chunk": self.chunk,
                "quads": quads,
                "rows": rows,
                "several": self.queries > 1,
                "k_major": self.k_major,
                "retrieves": self.retrieves,
            },
            groups=self.batch * self.heads_v * tiles,
            workgroup=64,
        )
