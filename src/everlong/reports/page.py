"""The report: one self-contained HTML page, made from the records of a run alone."""

import base64
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from everlong.reports import _facts
from everlong.reports._blocks import diagnosis_buckets, legend, repair_blocks
from everlong.reports._chart import DrawnChart
from everlong.reports._experiment_blocks import arm_blocks, contrast_lines
from everlong.reports._experiment_blocks import legend as arm_terms
from everlong.reports._results import Results, load_results, mean_losses
from everlong.reports._styles import styles_of
from everlong.reports._task_blocks import legend as task_terms
from everlong.reports._task_blocks import score_words, task_block
from everlong.reports._words import interval, policy_name, positions, signed
from everlong.reports.checks import check_cells
from everlong.reports.figures import write_figures
from everlong.reports.findings import findings
from everlong.runs import Run, write_bytes

PAGE = "report.html"


def write_report(run: Run, *, paper: bool = False) -> Path:
    """Draws the figures of a run and writes its page from the records that are there; if unfinished, the page says so.

    Args:
        run: a run folder of any verb.
        paper: whether to draw it beside the paper's own, approximate, curves, too.

    Returns:
        The path of report.html.

    Raises:
        EverlongError: a record is there and not readable.
    """
    results = load_results(run)
    charts = write_figures(results, run.path / "figures", paper=paper)
    path = run.path / PAGE
    write_bytes(path, _render(results, charts, run.path).encode())
    return path


def _render(results: Results, charts: tuple[DrawnChart, ...], folder: Path) -> str:
    here = files("everlong.reports")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["signed"] = signed
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        style=Markup((here / "page.css").read_text(encoding="utf-8")),
        charts=[_chart(chart) for chart in charts],
        folder=folder,
        interval=interval,
        positions=positions,
        results=results,
        styles=styles_of(results.labels),
        **_head(results),
        **_result(results),
        **_experiment(results),
        **_tasks(results),
        **_decision(results),
        **_run(results, folder),
    )


def _head(results: Results) -> dict[str, Any]:
    return {
        "version": results.environment.get("packages", {}).get("everlong") or _own_version(),
        "started": str(results.environment.get("started", "")).replace("T", " ")[:16],
        "title": _facts.title(results),
        "headline": _facts.headline(results),
        "facts": _facts.facts(results),
        "warnings": [
            *(results.repair.warnings if results.repair else ()),
            *(results.overview.warnings if results.overview else ()),
            *(f"Exceeds the bound that was asked for: {words}." for words in _exceeded(results)),
        ],
        "done": _facts.done(results),
    }


def _exceeded(results: Results) -> tuple[str, ...]:
    return results.overview.exceeded if results.overview else ()


def _result(results: Results) -> dict[str, Any]:
    if not results.repair or not results.repair.rows:
        return {"blocks": [], "ranges": [], "confidence": "", "terms": ()}
    excess = results.repair.rows[0].own
    return {
        "blocks": repair_blocks(results.repair),
        "ranges": [positions(*bounds) for bounds in zip(excess.starts, excess.stops, strict=True)],
        "confidence": f"{excess.confidence:.0%}",
        "terms": legend(results.repair),
    }


def _experiment(results: Results) -> dict[str, Any]:
    experiment = results.experiment
    if experiment is None:
        return {"experiment": None}
    return {
        "experiment": {
            "ranges": [positions(*bounds) for bounds in zip(experiment.starts, experiment.stops, strict=True)],
            "arms": arm_blocks(experiment),
            "contrasts": contrast_lines(experiment),
            "terms": arm_terms(experiment),
            "runs": experiment.runs,
            "proposal": experiment.proposal,
        }
    }


def _tasks(results: Results) -> dict[str, Any]:
    evaluations = results.evaluations.values()
    return {
        "tasks": [(evaluation, task_block(evaluation)) for evaluation in evaluations],
        "task_terms": task_terms(evaluations),
        "task_settings": [(evaluation.task, list(_facts.flat(evaluation.settings))) for evaluation in evaluations],
        "score_words": score_words,
        "checks": [(check, check_cells(check)) for check in results.doctor.checks] if results.doctor else [],
    }


def _decision(results: Results) -> dict[str, Any]:
    views = []
    for label, diagnosis in results.diagnoses.items():
        means = {name: mean_losses(losses, diagnosis.targets) for name, losses in diagnosis.losses.items()}
        column = {b: i for i, b in enumerate(zip(diagnosis.bucket_starts, diagnosis.bucket_stops, strict=True))}
        rows = []
        for bucket in diagnosis_buckets(diagnosis):
            at = column.get((bucket.start, bucket.stop))
            values = [float(values[at]) if at is not None else float("nan") for values in means.values()]
            rows.append((bucket, ["n/a" if np.isnan(value) else f"{value:.3f}" for value in values]))
        names = [policy_name(name, diagnosis.context) for name in means]
        views.append({"name": results.name(label), "diagnosis": diagnosis, "policies": names, "rows": rows})
    base = results.base
    return {
        "summary": _facts.summary(results),
        "diagnoses": views,
        "findings": [
            (results.name(label), found)
            for label, diagnosis in results.diagnoses.items()
            if (found := findings(label, diagnosis, results.measures))
        ],
        "rule": _facts.rule(base) if base else [],
        "policies": _facts.policies(results, base) if base else [],
    }


def _run(results: Results, folder: Path) -> dict[str, Any]:
    base = results.base
    return {
        "proposal": results.repair.proposal if results.repair else "",
        "arms": _facts.arms(results),
        "arm_headers": _facts.ARM_HEADERS,
        "arm_settings": [(results.name(k), list(_facts.flat(v.settings))) for k, v in results.trainings.items()],
        "times": _facts.times(results),
        "data": _facts.data(base) if base else [],
        "documents": list(zip(base.documents, base.document_tokens, base.offsets, strict=True)) if base else [],
        "models": _facts.models(results),
        "measures": _facts.measures(results),
        "commands": _facts.commands(results, folder),
        "settings": list(_facts.flat(results.config)),
        "machine": list(_facts.flat(results.environment)),
        "limits": _facts.limits(results),
    }


def _chart(chart: DrawnChart) -> dict[str, Any]:
    encoded = base64.b64encode(chart.csv.encode()).decode()
    return {
        "name": chart.name,
        "title": chart.title,
        "caption": chart.caption,
        "drawing": Markup(chart.svg),
        # The data travels inside the page, so that the page can be sent alone.
        "data": f"data:text/csv;base64,{encoded}",
    }


def _own_version() -> str:
    try:
        return version("everlong")
    except PackageNotFoundError:
        return "(not installed)"
