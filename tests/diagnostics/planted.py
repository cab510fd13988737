"""A model with a planted flaw: its loss depends on how many tokens it has read since its state was zero."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from everlong.data.corpus import Corpus, TokenDocument
from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.state import LeafSpec, RecurrentState, StateSpec

SPEC = StateSpec(
    architecture="planted",
    leaves=(LeafSpec(layer=0, name="count", role="recurrent", shape=(1,), dtype=torch.float32),),
)
VOCABULARY = 16


class PlantedModel(LanguageModel):
    """Predicts the next token, (x + 1) mod 16, with a confidence that ``nats(tokens read)`` sets."""

    def __init__(self, nats: Callable[[torch.Tensor], torch.Tensor]):
        nn.Module.__init__(self)
        self.nats = nats
        self.config = SimpleNamespace(architecture="planted", padded_vocab_size=VOCABULARY)

    dtype = property(lambda self: torch.float32)
    device = property(lambda self: torch.device("cpu"))

    def backend_in_use(self) -> str:
        return "planted"

    def forward(self, tokens, state=None, *, resets=None):
        batch, length = tokens.shape
        before = SPEC.zeros(batch).leaves[0] if state is None else state.leaves[0]
        read = before + torch.arange(1, length + 1)
        right = torch.exp(-self.nats(read))  # the probability of the true next token
        wrong = (1 - right) / (VOCABULARY - 1)
        logits = wrong.log().unsqueeze(-1).repeat(1, 1, VOCABULARY)
        logits.scatter_(2, ((tokens + 1) % VOCABULARY).unsqueeze(-1), right.log().unsqueeze(-1))
        return LanguageModelOutput(logits, RecurrentState(SPEC, (before + length,)))


def counting_documents(lengths: list[int], seed: int = 0) -> Corpus:
    """Documents that count upwards modulo 16, with some tokens wrong at random, so that losses vary."""
    generator = np.random.default_rng(seed)
    documents = []
    for index, length in enumerate(lengths):
        tokens = (np.arange(length) + generator.integers(16)) % VOCABULARY
        wrong = generator.random(length) < generator.uniform(0.02, 0.05)
        tokens[wrong] = generator.integers(0, VOCABULARY, int(wrong.sum()))
        documents.append(TokenDocument(f"document {index}", tokens.astype(np.uint16)))
    return Corpus(tuple(documents))
