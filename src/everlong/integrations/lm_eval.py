"""lm-evaluation-harness: the model ``everlong``, which reads inputs of any length with its state carried.

    python -m everlong.integrations.lm_eval --model everlong --model_args pretrained=MODEL --tasks wikitext

takes the harness's own flags. Its other wrappers cut inputs to a maximum length, or restart every window, and so never
see what happens beyond it. Here nothing is cut: an input beyond ``max_length``, where one is given, is an error. Needs
the extra ``everlong[lm-eval]``.
"""

# pyright: reportMissingImports=false
# (lm-eval is an extra, which the set-up for development leaves out)

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
from everlong.errors import EverlongError
from everlong.loading import open_model
from everlong.models.config import SamplingConfig
from everlong.models.generation import LONGEST_PIECE, TOKENS_AT_ONCE, Writer, read_prompts
from everlong.policies.carry import Carry
from everlong.reading import losses, read_answers

END_OF_TEXT = "<|endoftext|>"
MOST_NEW_TOKENS = 256  # where a task does not say


@register_model("everlong")
class EverlongLM(TemplateLM):
    """A model for the harness.

    Args:
        pretrained: a folder or file of any checkpoint format, or a hub id.
        tokenizer: as ``--tokenizer`` of everlong's verbs; None: the model's own.
        prefix: what the first token of a text is predicted from, a text of one token; None: ``<|endoftext|>`` where the
            tokenizer has it, else a line's end.
        max_length: tokens; a longer input is an error. None: any length is read.
        batch_size: rows side by side at most; "auto": as many as the lengths allow.
        max_batch_size: of the harness; ``batch_size`` is the most already.
        backend: how the recurrences are computed.
        device: where.
        dtype: of the weights and activations.
        seed: of what is drawn, where a task asks for samples.
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
        checkpoint = open_model(pretrained, backend=backend, device=device, dtype=dtype)
        self.model, self._name, self._seed = checkpoint.model, checkpoint.name, seed
        self._device = self.model.device
        self._tokenizer = load_tokenizer(tokenizer, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
        self.max_length = max_length
        self._most_rows = None if batch_size in (None, "auto") else int(batch_size)
        end = self._tokenizer.encode(END_OF_TEXT)
        self._end = int(end[0]) if len(end) == 1 else None
        first = self._tokenizer.encode(prefix or (END_OF_TEXT if self._end is not None else "\n"))
        if len(first) != 1:
            raise EverlongError(f"prefix {prefix!r} is {len(first)} tokens; give a text of one")
        self._prefix = int(first[0])

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
        return self._tokenizer.encode(string).tolist()

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of whole texts, each read once from its beginning."""
        documents = [np.array([self._prefix, *self.tok_encode(*request.args)], dtype=np.int64) for request in requests]
        for document in documents:
            self._check(len(document) - 1)
        spans = [(index, 1, len(document) - 1) for index, document in enumerate(documents) if len(document) > 1]
        found = dict(zip((span[0] for span in spans), losses(self.model, documents, Carry(), spans), strict=True))
        results = [
            -float(found[index].sum(dtype=np.float64)) if index in found else 0.0 for index in range(len(requests))
        ]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations; a context that several share is read once."""
        sharing: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, (words, context, continuation) in enumerate(requests):
            if not continuation:
                raise EverlongError(f"continuation {words[1]!r} adds no token to its context; it cannot be scored")
            self._check(len(context) + len(continuation))
            sharing[tuple(context)].append(index)
        results: dict[int, tuple[float, bool]] = {}
        for context, members in sharing.items():
            logits, state = read_prompts(self.model, [torch.tensor(context)])
            for rows in self._side_by_side(members, [len(requests[index][2]) for index in members]):
                answers = [np.array(requests[index][2]) for index in rows]
                copies = torch.zeros(len(rows), dtype=torch.int64, device=self.model.device)
                likeliest, nats = read_answers(self.model, logits[copies], state.rows(copies), answers)
                for index, answer, best, of_row in zip(rows, answers, likeliest, nats, strict=True):
                    results[index] = (-float(of_row.sum(dtype=np.float64)), bool(np.array_equal(best, answer)))
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
            settings = _Settings(given[members[0]][1])
            for index in members:
                self._check(len(prompts[index]) + settings.most)
            for rows in self._side_by_side(members, [len(prompts[index]) for index in members]):
                texts = self._write([torch.tensor(prompts[index]) for index in rows], settings)
                for index, text in zip(rows, texts, strict=True):
                    results[index] = text
                    self.cache_hook.add_partial("generate_until", requests[index].args, text)
        return results

    def _write(self, prompts: list[torch.Tensor], settings: "_Settings") -> list[str]:
        stop_tokens = () if self._end is None else (self._end,)
        logits, state = read_prompts(self.model, prompts)
        sampling = settings.sampling
        writer = Writer(self.model, logits, state, sampling=sampling, stop_tokens=stop_tokens, seed=self._seed)
        streams, texts = [TextStream(self._tokenizer) for _ in prompts], [""] * len(prompts)
        for _ in range(settings.most):
            for row, token in writer.step():
                texts[row] += streams[row].add(token) if token not in stop_tokens else ""
            writer.end([row for row in writer.rows if settings.stops(texts[row])])
            if not writer.rows:
                break
        return [settings.cut(text + stream.end()) for text, stream in zip(texts, streams, strict=True)]

    def _side_by_side(self, members: Sequence[int], lengths: Sequence[int]) -> Iterator[Sequence[int]]:
        rows = max(1, TOKENS_AT_ONCE // min(max(*lengths, 1), LONGEST_PIECE))
        rows = min(rows, self._most_rows or rows)
        for start in range(0, len(members), rows):
            yield members[start : start + rows]

    def _check(self, length: int) -> None:
        if self.max_length is not None and length > self.max_length:
            raise EverlongError(
                f"an input of {length:,} tokens is longer than max_length={self.max_length:,}, and nothing is cut: "
                "give a larger max_length, or none"
            )


class _Settings:
    """What the harness asks of a text that is written."""

    KNOWN = frozenset({"until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p"})

    def __init__(self, given: dict[str, Any]):
        unknown = sorted(set(given) - self.KNOWN)
        if unknown:
            raise EverlongError(
                f"generation setting {', '.join(unknown)} is unknown; known: {', '.join(sorted(self.KNOWN))}"
            )
        until = given.get("until") or []
        self.until = [text for text in ([until] if isinstance(until, str) else until) if text]
        self.most = int(given.get("max_gen_toks", MOST_NEW_TOKENS))
        temperature = float(given.get("temperature") or 0.0)
        sampled = bool(given.get("do_sample", temperature > 0))
        self.sampling = SamplingConfig(
            temperature=(temperature or 1.0) if sampled else 0.0,
            top_k=given.get("top_k"),
            top_p=given.get("top_p", 1.0),
        )

    def stops(self, text: str) -> bool:
        """Whether a text holds a stop sequence."""
        return any(stop in text for stop in self.until)

    def cut(self, text: str) -> str:
        """The text before the first stop sequence."""
        return text[: min((text.index(stop) for stop in self.until if stop in text), default=len(text))]


def main() -> None:
    """The harness's own command line, with the model registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
