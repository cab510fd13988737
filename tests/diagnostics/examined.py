"""Examinations of tiny models on random text."""

from typing import Any

import numpy as np
from rich.console import Console

from everlong.data.corpus import Corpus, TokenDocument
from everlong.diagnostics._examination import Examination, examination
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress

CONTEXT, LENGTH = 16, 96


def random_documents(lengths: tuple[int, ...], vocabulary: int, seed: int = 0) -> Corpus:
    """Documents of random tokens."""
    generator = np.random.default_rng(seed)
    drawn = (generator.integers(0, vocabulary, length).astype(np.uint16) for length in lengths)
    return Corpus(tuple(TokenDocument(f"document {index}", tokens) for index, tokens in enumerate(drawn)))


def examined(
    model: LanguageModel,
    *,
    lengths: tuple[int, ...] = (LENGTH + 5,) * 4,
    corpus: Corpus | None = None,
    context: int = CONTEXT,
    length: int = LENGTH,
    **settings: Any,
) -> Examination:
    """An examination of all the documents."""
    corpus = corpus or random_documents(lengths, model.config.vocab_size)
    given = {"label": "before", "model_name": "tiny", "confidence": 0.95, "tolerance": 0.02, "seed": 0, **settings}
    return examination(
        model,
        corpus,
        context=context,
        length=length,
        documents=len(corpus.documents),
        progress=Progress(Console(quiet=True)),
        **given,
    )
