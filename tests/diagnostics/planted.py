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


class WithoutBackbone(LanguageModel):
    """A model that is its ``forward`` alone."""

    def advance(self, tokens, state=None):
        output = self(tokens, state)
        return LanguageModelOutput(output.logits[:, -1:], output.state)


class PlantedModel(WithoutBackbone):
    """Predicts the next token, (x + 1) mod 16, with a confidence that ``nats(tokens read)`` sets."""

    def __init__(self, nats: Callable[[torch.Tensor], torch.Tensor]):
        nn.Module.__init__(self)
        self.nats = nats
        self.config = SimpleNamespace(architecture="planted", vocab_size=VOCABULARY, padded_vocab_size=VOCABULARY)

    state_spec = property(lambda self: SPEC)
    dtype = property(lambda self: torch.float32)
    device = property(lambda self: torch.device("cpu"))

    def backend_in_use(self) -> str:
        return "planted"

    def forward(self, tokens, state=None, *, resets=None):
        batch, length = tokens.shape
        before = SPEC.zeros(batch).leaves[0] if state is None else state.leaves[0]
        logits = self.confident(tokens, before + torch.arange(1, length + 1))
        return LanguageModelOutput(logits, RecurrentState(SPEC, (before + length,)))

    def confident(self, tokens, read):
        """Logits after so many tokens read, [B, T]."""
        right = torch.exp(-self.nats(read))  # the probability of the true next token
        wrong = (1 - right) / (VOCABULARY - 1)
        logits = wrong.log().unsqueeze(-1).repeat(1, 1, VOCABULARY)
        return logits.scatter(2, ((tokens + 1) % VOCABULARY).unsqueeze(-1), right.log().unsqueeze(-1))


GUILTY_SPEC = StateSpec(
    architecture="planted",
    leaves=(
        LeafSpec(layer=0, name="recurrent", role="recurrent", shape=(2, 1), dtype=torch.float32),
        LeafSpec(layer=1, name="recurrent", role="recurrent", shape=(2, 1), dtype=torch.float32),
        LeafSpec(layer=1, name="convolution", role="convolution", shape=(2, 1), dtype=torch.float32),
    ),
)


class GuiltyLeafModel(PlantedModel):
    """All leaves count the tokens read; only the second head of one of them sets the loss."""

    def __init__(self, nats: Callable[[torch.Tensor], torch.Tensor], guilty: int):
        super().__init__(nats)
        self.guilty = guilty

    state_spec = property(lambda self: GUILTY_SPEC)

    def forward(self, tokens, state=None, *, resets=None):
        state = GUILTY_SPEC.zeros(len(tokens)) if state is None else state
        before = state.leaves[self.guilty][:, 1]
        logits = self.confident(tokens, before + torch.arange(1, tokens.shape[1] + 1))
        return LanguageModelOutput(logits, state.map(lambda leaf: leaf + tokens.shape[1]))


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


class LastTokensModel(WithoutBackbone):
    """Sees its last ``width`` tokens and nothing else, by construction: its state is these tokens.

    Its logits are a fixed random function of each of them; with ``helps`` it is the surer of the true next token,
    (x + 1) mod 16, the more of its width it has read: by ever less for each token.
    """

    def __init__(self, width: int, *, helps: bool = False):
        nn.Module.__init__(self)
        self.width, self.helps = width, helps
        self.config = SimpleNamespace(architecture="planted", vocab_size=VOCABULARY, padded_vocab_size=VOCABULARY)
        generator = torch.Generator().manual_seed(0)
        self.table = torch.rand(width, VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64)
        leaf = LeafSpec(layer=0, name="tokens", role="recurrent", shape=(width,), dtype=torch.float64)
        self.spec = StateSpec(architecture="planted", leaves=(leaf,))

    dtype = property(lambda self: torch.float64)
    device = property(lambda self: torch.device("cpu"))
    state_spec = property(lambda self: self.spec)

    def backend_in_use(self) -> str:
        return "planted"

    def forward(self, tokens, state=None, *, resets=None):
        before = self.spec.zeros(len(tokens)).leaves[0] if state is None else state.leaves[0]
        seen = torch.cat([before, tokens.double() + 1], dim=1)  # zero: nothing was read there
        windows = seen.unfold(1, self.width, 1)[:, 1:].long()  # [B, T, width]
        read = windows > 0
        looked_up = self.table[torch.arange(self.width), (windows - 1).clamp(min=0)]
        logits = (looked_up * read.unsqueeze(-1)).sum(2)
        if self.helps:
            sure = 4 * (1 - 2.0 ** (-read.sum(-1, keepdim=True) / (0.19 * self.width)))
            logits = sure * nn.functional.one_hot((tokens + 1) % VOCABULARY, VOCABULARY).double()
        return LanguageModelOutput(logits, RecurrentState(self.spec, (seen[:, -self.width :],)))


class ScaledLaterModel(WithoutBackbone):
    """Another model, one of whose state leaves is multiplied by a factor once ``position`` tokens have been read."""

    def __init__(self, inner: LanguageModel, *, position: int, factor: float, leaf: int):
        nn.Module.__init__(self)
        self.inner, self.position, self.factor, self.leaf = inner, position, factor, leaf
        self.config, self.backbone = inner.config, getattr(inner, "backbone", None)
        count = LeafSpec(layer=0, name="count", role="convolution", shape=(1,), dtype=torch.float64)
        self.spec = StateSpec(architecture="planted", leaves=(*inner.state_spec.leaves, count))

    dtype = property(lambda self: self.inner.dtype)
    device = property(lambda self: torch.device("cpu"))
    state_spec = property(lambda self: self.spec)

    def backend_in_use(self) -> str:
        return self.inner.backend_in_use()

    def forward(self, tokens, state=None, *, resets=None):
        state = self.spec.zeros(len(tokens)) if state is None else state
        logits = torch.empty(*tokens.shape, self.config.padded_vocab_size, dtype=self.dtype)
        leaves = [torch.empty_like(leaf) for leaf in state.leaves]
        for count in state.leaves[-1].unique().tolist():  # rows that have read as much as each other
            rows = (state.leaves[-1] == count).squeeze(1).nonzero().squeeze(1)
            found, final = self._read(tokens[rows], state.rows(rows), int(count))
            logits[rows] = found
            for leaf, new in zip(leaves, final, strict=True):
                leaf[rows] = new
        return LanguageModelOutput(logits, RecurrentState(self.spec, tuple(leaves)))

    def _read(self, tokens, state, count):
        inner = RecurrentState(self.inner.state_spec, state.leaves[:-1])
        before = max(0, min(self.position - count, tokens.shape[1]))
        logits = []
        for piece in (tokens[:, :before], tokens[:, before:]):
            if not piece.shape[1]:
                continue
            output = self.inner(piece, inner)
            inner, count = output.state, count + piece.shape[1]
            logits.append(output.logits)
            if count == self.position:
                inner = self._scaled(inner)
        return torch.cat(logits, dim=1), (*inner.leaves, state.leaves[-1] + tokens.shape[1])

    def _scaled(self, state):
        leaves = list(state.leaves)
        leaves[self.leaf] = leaves[self.leaf] * self.factor
        return RecurrentState(state.spec, tuple(leaves))


def never_forgets(model: LanguageModel) -> LanguageModel:
    """A Mamba-2 whose decays are next to none, so that what is planted in its state stays there."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.fill_(-12.0)
    return model
