"""A diagnosis: one model, one panel of held-out documents, every reading policy, the verdict."""

import time

import numpy as np

from everlong.data.corpus import Corpus
from everlong.diagnostics._panel import mean_by_bucket, sample_targets, select_panel, targets_by_bucket
from everlong.diagnostics.buckets import curve_buckets, doubling_buckets, octaves
from everlong.diagnostics.config import DiagnosisConfig
from everlong.diagnostics.paired_excess import paired_excess
from everlong.diagnostics.position_loss import position_curve
from everlong.diagnostics.verdict import judge
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.policies.carry import Carry
from everlong.policies.restart import Restart
from everlong.policies.window import Window
from everlong.progress import Progress
from everlong.reading import losses, tokens_to_read
from everlong.records.diagnosis import Curve, Diagnosis

WINDOW_WIDTHS = (0.5, 1, 2, 4, 8)  # in training lengths
EXACTLY_ZERO = 1e-3  # nats by which rounding may part two reads of the same tokens in batches of different shape


def diagnose(
    model: LanguageModel,
    held_out: Corpus,
    *,
    context: int,
    config: DiagnosisConfig,
    label: str,
    model_name: str,
    seed: int,
    progress: Progress,
) -> Diagnosis:
    """Reads the held-out documents under every policy and judges what the carried state is worth.

    Args:
        model: in any mode, on any device.
        held_out: documents that the model was not trained on.
        context: the training length in tokens.
        config: how far, on how much, how sure.
        label: what the record calls the model: before, or the method that made it.
        model_name: where the model came from.
        seed: of the panel, the sample of targets and the bootstrap: equal seeds read equal targets.
        progress: where to report to.

    Raises:
        EverlongError: max_length is not beyond the context, or no document is.
    """
    length, started = config.max_length, time.monotonic()
    if length <= context:
        raise EverlongError(f"--max-length {length} is not beyond the training context of {context} tokens")
    panel = select_panel(held_out, context=context, length=length, documents=config.documents, seed=seed)
    buckets = doubling_buckets(context, length)
    sample = sample_targets(panel, buckets, context=context, blocks=config.blocks(context), seed=seed)
    spans = [span for span, _ in sample]
    whole = [(document, 1, len(row) - 1) for document, row in enumerate(panel.rows)]
    windows = [Window(max(1, round(share * context)), config.window_share) for share in WINDOW_WIDTHS]
    everything = [(Carry(), whole), (Restart(context), whole), *((window, spans) for window in windows)]
    total = sum(tokens_to_read(policy, where) for policy, where in everything)

    by_position: dict[str, np.ndarray] = {}
    by_bucket: dict[str, np.ndarray] = {}
    with progress.task(f"diagnosing {label}", total=total) as task:
        for policy, where in everything:
            found = losses(model, panel.rows, policy, where, advance=task.advance)
            if where is whole:
                by_position[policy.name] = _by_position(found, length)
                found = [by_position[policy.name][document, first - 1 : last] for document, first, last in spans]
            by_bucket[policy.name] = mean_by_bucket(found, sample, len(panel.rows), len(buckets))
    targets = targets_by_bucket(sample, len(panel.rows), len(buckets))
    own = f"window:{context}"
    if not np.nanmax(np.abs(by_bucket["carry"][:, 0] - by_bucket[own][:, 0])) < EXACTLY_ZERO:
        raise AssertionError("within the training length the carried state and the window read the same tokens")

    full = panel.full(length)
    excess = paired_excess(
        by_bucket["carry"],
        by_bucket[own],
        targets,
        buckets,
        name=f"its own window of {context} tokens",
        confidence=config.confidence,
        seed=seed,
    )
    by_octave = position_curve("carry", by_position["carry"][full], octaves(context, length))
    curves = [position_curve(name, values[full], curve_buckets(length)) for name, values in by_position.items()]
    curves.append(
        Curve(
            policy=own,
            starts=excess.starts,
            stops=excess.stops,
            losses=by_bucket[own][full],
        )
    )
    return Diagnosis(
        label=label,
        model=model_name,
        architecture=model.config.architecture,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        context=context,
        length=length,
        documents=panel.names,
        document_tokens=tuple(len(row) for row in panel.rows),
        offsets=panel.offsets,
        data_fingerprint=held_out.fingerprint,
        bucket_starts=tuple(start for start, _ in buckets),
        bucket_stops=tuple(stop for _, stop in buckets),
        targets=targets,
        losses=by_bucket,
        curves=tuple(curves),
        in_range_losses=np.nanmean(by_position["restart"], axis=1),
        excess=excess,
        verdict=judge(excess, by_octave, config, context=context, seed=seed),
        window_share=config.window_share,
        seed=seed,
        backend=model.backend_in_use(),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        seconds=time.monotonic() - started,
        tokens_read=total,
    )


def _by_position(found: list[np.ndarray], length: int) -> np.ndarray:
    """[documents, length], not-a-number beyond a document's end."""
    table = np.full((len(found), length), np.nan, dtype=np.float32)
    for row, values in zip(table, found, strict=True):
        row[: len(values)] = values
    return table
