"""`everlong generate`: a model goes on with a text."""

from collections.abc import Iterator

import torch

from everlong.data.text_stream import TextStream
from everlong.data.tokenizers import Tokenizer, load_tokenizer
from everlong.errors import EverlongError
from everlong.models.generation import Writer, check_stop_tokens, known_ids, read_prompts
from everlong.models.language_model import LanguageModel
from everlong.workflows._subject import open_checkpoint
from everlong.workflows.config import GenerateConfig


def generate(config: GenerateConfig) -> Iterator[str]:
    """Yields the continuation of a text as it is written, a few characters at a time; see ``GenerateConfig``.

    Model, tokenizer, prompt and stop tokens are checked before this returns. Ids that the tokenizer does not know are
    never written.
    """
    checkpoint = open_checkpoint(config.model, config.machine)
    tokenizer = load_tokenizer(config.tokenizer, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
    check_stop_tokens(config.stop_tokens, known_ids(checkpoint.model, tokenizer.vocab_size))
    return _write(checkpoint.model, tokenizer, _prompt(config.prompt, tokenizer, checkpoint.model), config)


def _write(model: LanguageModel, tokenizer: Tokenizer, prompt: torch.Tensor, config: GenerateConfig) -> Iterator[str]:
    stream = TextStream(tokenizer)
    writer = Writer(
        model,
        *read_prompts(model, [prompt]),
        sampling=config.sampling,
        stop_tokens=config.stop_tokens,
        seed=config.machine.seed,
        known=tokenizer.vocab_size,
    )
    for _ in range(config.max_new_tokens):
        ((_, token),) = writer.step()
        if not writer.rows:
            break
        if text := stream.add(token):
            yield text
    if text := stream.end():
        yield text


def _prompt(text: str, tokenizer: Tokenizer, model: LanguageModel) -> torch.Tensor:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # the shell passed bytes that are no UTF-8
        raise EverlongError(f"--prompt is not UTF-8 at character {error.start}: re-encode it as UTF-8") from None
    ids = tokenizer.encode(text)
    if not len(ids):
        raise EverlongError("--prompt is empty: give at least one character to go on from")
    if ids.max() >= model.config.vocab_size:
        raise EverlongError(
            f"--prompt has token id {ids.max()}, the model knows 0 to {model.config.vocab_size - 1}: give the "
            "tokenizer that it was trained with, --tokenizer bytes|PATH|ID"
        )
    return torch.from_numpy(ids.astype("int64"))
