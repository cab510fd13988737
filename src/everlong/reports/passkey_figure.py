"""Passkey: accuracy over length and depth, as the paper's Fig. 7."""

import numpy as np
from matplotlib.figure import Figure

from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._task_blocks import csv_table

CAPTION = (
    "Share of {examples} passkeys that the model says right after prompts of each length (tokens, across) with the key "
    "at each depth (share of the filler before it, down). A guess scores {chance:.0e}. The CSV has every measure, with "
    "intervals of {confidence:.0%}, and the floors.{context}"
)


def passkey_figure(results: Results) -> Chart | None:
    """The heat map, or nothing where no passkey was asked for."""
    evaluation = results.evaluations.get("passkey")
    if evaluation is None:
        return None
    cells = {(cell.parameters["length"], cell.parameters["depth"]): cell for cell in evaluation.cells}
    lengths, depths = (sorted({key[axis] for key in cells}) for axis in (0, 1))
    measure = evaluation.measures[0]
    means = np.full((len(depths), len(lengths)), np.nan)
    for (length, depth), cell in cells.items():
        means[depths.index(depth), lengths.index(length)] = cell.scores[measure].mean
    figure = Figure(figsize=(WIDTH, 1.4 + 0.5 * len(depths)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(means, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for row, column in np.argwhere(np.isfinite(means)):
        value = means[row, column]
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="black" if value > 0.55 else "white")
    axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths], rotation=30)
    axes.set_yticks(range(len(depths)), [f"{depth:g}" for depth in depths])
    axes.set_xlabel("length in tokens")
    axes.set_ylabel("depth of the key")
    context = evaluation.context or 0
    within = sum(length <= context + 1 for length in lengths)  # the last token of an example is not read
    line = 0 < within < len(lengths)
    if line:
        axes.axvline(within - 0.5, color="#D55E00", linewidth=2)
    columns, rows = csv_table([evaluation])
    return Chart(
        name="passkey",
        title="Passkey retrieval",
        caption=CAPTION.format(
            examples=max(cell.examples for cell in evaluation.cells),
            confidence=evaluation.confidence,
            chance=evaluation.cells[0].floors["chance"],
            context=f" Right of the line, beyond the training length of {context:,} tokens." if line else "",
        ),
        figure=figure,
        columns=columns,
        rows=rows,
    )
