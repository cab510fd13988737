"""lm-evaluation-harness: the model ``everlong``, which reads inputs of any length with its state carried.

    python -m everlong.integrations.lm_eval --model everlong --model_args pretrained=MODEL --tasks wikitext

takes the harness's own flags. Its other wrappers cut inputs to a maximum length, or restart every window, and so never
see what happens beyond it. Here nothing is cut: an input beyond ``max_length``, where one is given, is an error. Needs
the extra ``everlong[lm-eval]``.
"""

# pyright: reportMissingImports=false
# (lm-eval is an extra, which the set-up for development leaves out)

import logging
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model

from everlong.data.text_stream import TextStream
from everlong.data.tokenizers import load_tokenizer
from everlong.errors import EverlongError, RunInterrupted
from everlong.integrations._generation_settings import GenerationSettings
from everlong.loading import best_device, open_model
from everlong.models.generation import LONGEST_PIECE, TOKENS_AT_ONCE, Writer, known_ids, read_prompts
from everlong.policies.carry import Carry
from everlong.reading import losses, read_answers

END_OF_TEXT = "<|endoftext|>"
MOST_ROWS = 64  # side by side, where batch_size is "auto": a state each
HARNESS_DEVICE = "cuda:0"  # what the harness's command line passes on where no --device is given


@register_model("everlong")
class EverlongLM(TemplateLM):
    """A model for the harness.

    Args:
        pretrained: a folder or file of any checkpoint format, a hub id, or "bundled".
        tokenizer: as ``--tokenizer`` of everlong's verbs; None: the model's own.
        prefix: what the first token of a text is predicted from, a text of one token; None: ``<|endoftext|>`` where the
            tokenizer has it, else a line's end.
        max_length: tokens; a longer input is an error. None: any length is read.
        batch_size: rows side by side at most; "auto" or "auto:N": as many as their lengths allow, 64 at most.
        max_batch_size: the most where ``batch_size`` is "auto".
        backend: how the recurrences are computed.
        device: where; None: a GPU where there is one, else the CPU, as with the harness's own default "cuda:0".
        dtype: of the weights and activations.
        seed: of what is drawn, where a task asks for samples: what a request draws depends on the seed and on its place
            among the requests alone, so that repeats differ and a batch size changes nothing.

    Raises:
        EverlongError: anything that ``open_model`` and ``load_tokenizer`` refuse, or an argument out of range.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        tokenizer: str | None = None,
        prefix: str | None = None,
        max_length: int | None = None,
        batch_size: int | str | None = "auto",
        max_batch_size: int | None = None,
        backend: str = "auto",
        device: str | None = None,
        dtype: str | None = None,
        seed: int = 0,
    ):
        super().__init__()
        checkpoint = open_model(pretrained, backend=backend, device=_device(device), dtype=dtype)
        self.model, self._name, self._seed = checkpoint.model, checkpoint.name, seed
        self._device = self.model.device
        self._tokenizer = load_tokenizer(tokenizer, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
        self.max_length = max_length
        self._most_rows = _most_rows(batch_size, max_batch_size)
        self._known = known_ids(self.model, self._tokenizer.vocab_size)
        end = self._tokenizer.encode(END_OF_TEXT)
        self._end = int(end[0]) if len(end) == 1 and end[0] < self._known else None
        first = self.tok_encode(prefix or (END_OF_TEXT if self._end is not None else "\n"))
        if len(first) != 1:
            raise EverlongError(f"prefix {prefix!r} is {len(first)} tokens; give a text of one")
        self._prefix = first[0]

    @property
    def eot_token_id(self) -> int:
        """What texts begin with here, and end with where the tokenizer has a token for that."""
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        """For the harness's own caches."""
        return self._tokenizer.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """The ids of a text; nothing is added."""
        ids = self._tokenizer.encode(string)
        if len(ids) and ids.max() >= self._known:
            raise EverlongError(
                f"token id {ids.max()} of a text is unknown to the model, which knows 0 to {self._known - 1}: give the "
                "tokenizer that it was trained with, tokenizer=bytes|PATH|ID"
            )
        return ids.tolist()

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of whole texts, each read once from its beginning."""
        documents = [np.array([self._prefix, *self.tok_encode(*request.args)], dtype=np.int64) for request in requests]
        for document in documents:
            self._check(len(document) - 1)
        results = [0.0] * len(requests)
        for rows in self._batches([len(document) - 1 for document in documents]):
            spans = [(index, 1, len(documents[index]) - 1) for index in rows if len(documents[index]) > 1]
            for (index, _, _), nats in zip(spans, losses(self.model, documents, Carry(), spans), strict=True):
                results[index] = -float(nats.sum(dtype=np.float64))
            for index in rows:
                self.cache_hook.add_partial("loglikelihood_rolling", requests[index].args, results[index])
        return results

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations; contexts are read side by side, one that several share once."""
        sharing: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, (words, context, continuation) in enumerate(requests):
            if not continuation:
                raise EverlongError(f"continuation {words[1]!r} adds no token to its context; it cannot be scored")
            # The harness moves the spaces at a context's end into the continuation, which may leave no context.
            context = context or [self._prefix]
            self._check(len(context) + len(continuation))
            sharing[tuple(context)].append(index)
        contexts = list(sharing)
        results: dict[int, tuple[float, bool]] = {}
        for places in self._batches([len(context) for context in contexts]):
            logits, state = read_prompts(self.model, [torch.tensor(contexts[place]) for place in places])
            asked = [(row, index) for row, place in enumerate(places) for index in sharing[contexts[place]]]
            for batch in self._batches([len(requests[index][2]) for _, index in asked]):
                rows = torch.tensor([asked[place][0] for place in batch], device=self.model.device)
                members = [asked[place][1] for place in batch]
                answers = [np.array(requests[index][2]) for index in members]
                found = read_answers(self.model, logits[rows], state.rows(rows), answers, known=self._known)
                for index, answer, likeliest, nats in zip(members, answers, *found, strict=True):
                    results[index] = (-float(nats.sum(dtype=np.float64)), bool(np.array_equal(likeliest, answer)))
                    self.cache_hook.add_partial("loglikelihood", requests[index][0], results[index])
        return [results[index] for index in range(len(requests))]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continues contexts up to the first stop sequence, which is left out."""
        given: list[Any] = [request.args for request in requests]  # (context, settings); the harness types it loosely
        prompts = [self.tok_encode(context) or [self._prefix] for context, _ in given]
        alike: dict[str, list[int]] = defaultdict(list)
        for index, (_, wanted) in enumerate(given):
            alike[repr(sorted(wanted.items()))].append(index)
        results = [""] * len(requests)
        for members in alike.values():
            settings = GenerationSettings(given[members[0]][1])
            for index in members:
                self._check(len(prompts[index]) + settings.most)
            for batch in self._batches([len(prompts[index]) for index in members]):
                rows = [members[place] for place in batch]
                texts = self._write([torch.tensor(prompts[index]) for index in rows], rows, settings)
                for index, text in zip(rows, texts, strict=True):
                    results[index] = text
                    self.cache_hook.add_partial("generate_until", requests[index].args, text)
        return results

    def _write(self, prompts: list[torch.Tensor], numbers: list[int], settings: GenerationSettings) -> list[str]:
        stop_tokens = () if self._end is None else (self._end,)
        writer = Writer(
            self.model,
            *read_prompts(self.model, prompts),
            sampling=settings.sampling,
            stop_tokens=stop_tokens,
            seed=self._seed,
            known=self._known,
            numbers=numbers,
        )
        streams, texts = [TextStream(self._tokenizer) for _ in prompts], [""] * len(prompts)
        for _ in range(settings.most):
            for row, token in writer.step():
                texts[row] += streams[row].add(token) if token not in stop_tokens else ""
            writer.end([row for row in writer.rows if settings.stops(texts[row])])
            if not writer.rows:
                break
        return [settings.cut(text + stream.end()) for text, stream in zip(texts, streams, strict=True)]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Places of the lengths, the longest first, in batches of rows that are read side by side."""
        order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
        start = 0
        while start < len(order):
            longest = min(max(1, lengths[order[start]]), LONGEST_PIECE)
            rows = min(self._most_rows, max(1, TOKENS_AT_ONCE // longest))
            yield order[start : start + rows]
            start += rows

    def _check(self, length: int) -> None:
        if self.max_length is not None and length > self.max_length:
            raise EverlongError(
                f"an input of {length:,} tokens is longer than max_length={self.max_length:,}, and nothing is cut: "
                "give a larger max_length, or none"
            )


def _device(requested: str | None) -> str:
    """The device asked for; the harness's default is nobody's wish, so where it cannot be met another is taken."""
    if requested == HARNESS_DEVICE and not torch.cuda.is_available():
        logging.getLogger(f"lm_eval.{__name__}").warning(
            "there is no GPU, so that the harness's default device %s cannot be used: the CPU is", HARNESS_DEVICE
        )
        return best_device(None)
    return best_device(requested)


def _most_rows(batch_size: int | str | None, max_batch_size: int | None) -> int:
    words = "auto" if batch_size is None else str(batch_size)
    if words.split(":")[0] == "auto":
        words = str(MOST_ROWS if max_batch_size is None else max_batch_size)
    if not words.isdecimal() or not int(words):
        raise EverlongError(f"a batch size is {words!r}; it must be auto, auto:N or a whole number from 1 on")
    return int(words)


def main() -> int:
    """The harness's own command line, with the model registered; returns the exit code, as ``everlong`` has them."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except EverlongError as error:
        print(f"everlong: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("everlong: interrupted", file=sys.stderr)
        return RunInterrupted.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
