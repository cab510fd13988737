"""What the page says in words and rows: what was run, on what, how it was decided, and what it does not show."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everlong.records.diagnosis import Diagnosis
from everlong.records.training import Training
from everlong.reports import _task_facts
from everlong.reports._results import Results
from everlong.reports._words import duration, estimate, method_name, plural, positions
from everlong.reports.checks import finding

Rows = list[tuple[str, str]]
ARM_HEADERS = ("steps", "scored tokens", "tokens read", "first loss", "final loss", "backend", "time", "model")


def headline(results: Results) -> str:
    """The verdict, or what was measured, in one sentence."""
    if results.repair:
        return results.repair.sentence
    if results.experiment:
        return results.experiment.sentence
    if results.overview:
        return results.overview.sentence
    verdicts = [(results.name(label), diagnosis.verdict.sentence) for label, diagnosis in results.diagnoses.items()]
    if len(verdicts) == 1 and results.verb != "repair":
        return verdicts[0][1]
    if verdicts:
        return " ".join(f"{name}: {sentence}" for name, sentence in verdicts)
    if results.trainings:
        return " ".join(
            f"{results.name(label)}: the loss went from {training.first_loss:.3f} to {training.final_loss:.3f} nats a "
            f"token in {plural(training.steps, 'step')}."
            for label, training in results.trainings.items()
        )
    if results.evaluations:
        return _task_facts.headline(results)
    if results.doctor:
        return f"{results.doctor.model}: {finding(results.doctor)}"
    if results.cells:
        return f"No task of this run of everlong {results.verb} is finished yet."
    return f"Nothing is measured yet in this run of everlong {results.verb}."


def title(results: Results) -> str:
    """The verb and the model."""
    measured = (results.base, *results.evaluations.values(), results.doctor)
    return ": ".join([f"Everlong {results.verb}", *[record.model for record in measured if record][:1]])


def done(results: Results) -> list[str]:
    """What there is of a run that is unfinished."""
    return [
        *(f"diagnosis: {results.name(label)}" for label in results.diagnoses),
        *(f"training: {results.name(label)}" for label in results.trainings),
        *(f"evaluation: {task}" for task in results.evaluations),
        *(f"{plural(count, 'cell')} of {task}" for task, count in results.cells.items()),
    ]


def facts(results: Results) -> list[str]:
    """The model and the reading, in a line or two under the headline."""
    base = results.base
    if base is None:
        return [*_task_facts.facts(results), *_training_facts(results), *_doctor_facts(results)]
    return [
        f"{base.model}: {base.architecture}, {base.parameters:,} parameters, trained on {base.context:,} tokens, read "
        f"to {base.length:,}.",
        f"{plural(len(set(base.documents)), 'held-out document')}; backend {base.backend} on {base.device}, "
        f"{base.dtype}; seed {base.seed}.",
    ]


def rule(base: Diagnosis) -> list[str]:
    """How a verdict is reached."""
    verdict = base.verdict
    return [
        f"Tolerance: {verdict.tolerance:g} nats a token. An excess that small is not counted as harm.",
        f"A bucket of positions harms when its whole interval lies above the tolerance, and is within it when its "
        f"upper end is. Intervals: {verdict.confidence:.0%}; {base.excess.interval}.",
        "The model breaks where the first of two harming buckets in a row starts; it holds as far as every bucket is "
        "within the tolerance; otherwise it is undecided, and more documents are needed.",
        f"Who decides: {plural(verdict.documents, 'held-out document')}. Positions within a document are not "
        f"independent; documents are the units of the intervals.",
        "Reading on pays only below the best window of the model and below the best of the zero control.",
    ]


def policies(results: Results, base: Diagnosis) -> Rows:
    """The ways of reading a long document, in two sentences each."""
    context = f"{base.context:,}"
    widths = ", ".join(f"{width:,}" for width in base.window_widths)
    return [
        (
            "carry",
            "The document is read once, from its beginning, and the state is never cleared. This is what a recurrent "
            "model promises, and what is judged here.",
        ),
        (
            "restart",
            f"The state is set to zero every {context} tokens. A target then sees between 1 and {context} tokens.",
        ),
        (
            "window",
            f"The model starts from zero and reads a window that ends near the target, of which only the last "
            f"1/{base.window_share} is scored, so that every target has nearly the whole window before it. "
            f"Widths measured: {widths} tokens.",
        ),
        *(
            [
                (
                    "recentre",
                    f"The state is carried, and every {context} tokens the drift of its mean is taken away: what other "
                    "documents' states have gained on average since the training length. No training is needed.",
                )
            ]
            if results.measures["mean_drift"]
            else []
        ),
        (
            "in range",
            f"Chunks of {context} tokens, each from the zero state, over the whole document. Its loss is the price "
            f"that a repair pays where the model was good already.",
        ),
    ]


def summary(results: Results) -> list[tuple[str, ...]]:
    """A row a model of a diagnosis: name, perplexity in range, verdict, excess in the last bucket that is judged."""
    rows = []
    for label, diagnosis in results.diagnoses.items() if results.overview else ():
        excess = diagnosis.excess
        judged = [i for i, count in enumerate(excess.documents) if count >= diagnosis.verdict.fewest_documents]
        words = "n/a"
        if judged:
            last = judged[-1]
            words = estimate(excess.mean[last], excess.lower[last], excess.upper[last])
            words += f" at {positions(excess.starts[last], excess.stops[last])}"
        rows.append((results.name(label), f"{diagnosis.in_range_perplexity:.3f}", diagnosis.verdict.short, words))
    return rows


def models(results: Results) -> list[tuple[str, ...]]:
    """A row a model, where several were diagnosed: name, where it came from, and what it is."""
    if len(results.diagnoses) < 2:
        return []
    return [
        (results.name(label), d.model, d.architecture, f"{d.parameters:,}", f"{d.context:,}", d.backend, d.dtype)
        for label, d in results.diagnoses.items()
    ]


def measures(results: Results) -> list[tuple[str, ...]]:
    """A row a measure and model: what it rests on."""
    return [
        (
            *(name.replace("_", " "), results.name(label), f"{len(record.basis.documents):,}"),
            *(f"{record.basis.tokens_read:,}", record.basis.backend, duration(record.basis.seconds)),
        )
        for name, of_models in results.measures.items()
        for label, record in of_models.items()
    ]


def arms(results: Results) -> list[tuple[str, ...]]:
    """A row an arm of training."""
    return [(results.name(label), *_arm(training)) for label, training in results.trainings.items()]


def times(results: Results) -> Rows:
    """How long each phase took."""
    whole = results.repair or results.experiment or results.overview
    if whole:
        seconds = dict(whole.seconds)
    else:
        seconds = {f"diagnosis of {results.name(k)}": v.seconds for k, v in results.diagnoses.items()}
        seconds |= {f"training of {results.name(k)}": v.seconds for k, v in results.trainings.items()}
        seconds |= _task_facts.times(results)
        seconds |= {"examination": results.doctor.seconds} if results.doctor else {}
    rows = [(phase, duration(value)) for phase, value in seconds.items()]
    return [*rows, ("together", duration(sum(seconds.values())))] if len(rows) > 1 else rows


def data(base: Diagnosis) -> Rows:
    """What was read."""
    return [
        ("documents held out", f"{len(set(base.documents)):,}"),
        ("of which reach beyond the training length", f"{base.judged_documents:,}"),
        ("tokens of these documents", f"{sum(base.document_tokens):,}"),
        ("tokens read by the diagnosis, under all policies", f"{base.tokens_read:,}"),
        ("targets scored under each policy", f"{int(base.targets.sum()):,}"),
        ("fingerprint", base.data_fingerprint),
    ]


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows: data.seed = 0."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or "none"
        else:
            yield f"{prefix}{key}", "not set" if value is None else str(value)


def commands(results: Results, folder: Path) -> Rows:
    """How the run was started, without its folder, and how this page is made again."""
    started = list(map(str, results.environment.get("command", ())))
    rows = [("this page, from the records alone", shlex.join(["everlong", "report", str(folder)]))]
    if not started:
        return rows
    program, arguments = _program(started[0]), started[1:]
    if program != ["everlong"]:
        return [("the process that this run was a part of", shlex.join([*program, *arguments])), *rows]
    if "--resume" in arguments or any(argument.startswith("--resume=") for argument in arguments):
        return rows
    return [("the run, in a new folder", shlex.join([*program, *_without_output(arguments)])), *rows]


def limits(results: Results) -> list[str]:
    """What a reader must not take from the page."""
    if results.verb == "evaluate":
        return _task_facts.limits(results)
    if results.verb == "doctor":
        return [
            "Random tokens were read: the checks say whether the model is computed rightly, not what it has learned."
        ]
    if results.verb == "train" and not results.diagnoses:
        return [
            "The loss is that on the rows it was trained on: how far the model can read beyond them, and how well it "
            "reads other text, is not measured here; everlong diagnose does.",
            "One training is one case: another seed gives another model.",
        ]
    base, explained = results.base, any(results.measures.values())
    reach = f"Nothing beyond {base.length:,} tokens was read. " if base else ""
    return [
        "The intervals cover the choice of documents from this corpus, not another corpus, another seed of training or "
        "another base model: bases differ, and one repair is one case.",
        f"{reach}No law is assumed by which the result would continue.",
        "A model that forgets what lies far back also stays flat. Flat is not memory: only an excess below zero says "
        "that the model uses what it carries.",
        "Loss is not a task: what the model can retrieve, or reason about, over such lengths is not measured here.",
        *(() if explained else ("Why the model broke is not shown by its repair.",)),
        *(
            ("A measure of causes that correlates with the harm is no cause; the transplant and recentring intervene.",)
            if explained
            else ()
        ),
    ]


def _training_facts(results: Results) -> list[str]:
    """What was trained on what."""
    if results.verb != "train":
        return []
    config = results.config
    start, task = config.get("start"), config.get("task")
    model = f"from {start}" if start else f"from scratch: {config.get('model', {}).get('architecture', 'not known')}"
    text = task or ", ".join(config.get("data", {}).get("data") or ()) or "the default text"
    return [
        f"Trained {model}, on {text}; {_rows_start(training.method)}; rows of {training.context:,} tokens, "
        f"{plural(training.steps, 'step')}, {training.scored_tokens:,} scored tokens; backend {training.backend}."
        for training in results.trainings.values()
    ]


def _rows_start(method: str) -> str:
    return "every row starts from zero" if method == "zero" else method_name(method)


def _doctor_facts(results: Results) -> list[str]:
    doctor = results.doctor
    if doctor is None:
        return []
    return [
        f"{doctor.model}: {doctor.architecture}, {doctor.parameters:,} parameters, {doctor.format} format.",
        f"Measured on {doctor.rows} rows of {doctor.length} random tokens (seed {doctor.seed}); backend "
        f"{doctor.backend} on {doctor.device}, {doctor.dtype}.",
    ]


def _program(path: str) -> list[str]:
    """The words that start a program again whose first argument was ``path``."""
    parts = Path(path).with_suffix("").parts
    if parts[-1:] == ("everlong",) or parts[-2:] == ("everlong", "__main__"):
        return ["everlong"]
    if "everlong" in parts:  # a recipe
        return ["python", "-m", ".".join(parts[len(parts) - 1 - parts[::-1].index("everlong") :])]
    return ["python", path]


def _without_output(arguments: list[str]) -> Iterator[str]:
    skip = False
    for argument in arguments:
        if not skip and argument != "--output" and not argument.startswith("--output="):
            yield argument
        skip = argument == "--output"


def _arm(training: Training) -> tuple[str, ...]:
    return (
        *(f"{training.steps:,}", f"{training.scored_tokens:,}", f"{training.read_tokens:,}"),
        *(f"{training.first_loss:.3f}", f"{training.final_loss:.3f}", training.backend),
        *(duration(training.seconds), training.model_folder),
    )
