"""`python -m benchmarks`: one table, and the figures behind it as JSON."""

import os
import sys
import time
from pathlib import Path

import tyro

from benchmarks.settings import Settings


def main(settings: Settings) -> int:
    """Runs the rows; returns 1 where a contract or a measurement failed, else 0."""
    threads = settings.threads or os.cpu_count() or 1
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported, and for the peers
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, see everlong.cli.main
    import torch
    from rich.console import Console

    from benchmarks.table import as_markdown, as_table, notes, select
    from everlong.runs import environment, write_json

    torch.set_num_threads(threads)
    rows, console, lines = select(settings.only), Console(), []
    output = settings.output or Path("runs/benchmarks") / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    for row in rows:
        start = time.perf_counter()
        line = row.run(settings)
        lines.append(line)
        figure = f"{line.measured.figure.median:.3g}" if line.measured else line.reason
        console.print(f"{row.name}: {line.outcome}, {figure} ({time.perf_counter() - start:.0f} s)", highlight=False)
        content = {
            "environment": environment(),
            "threads": threads,
            "repeats": settings.repeats,
            "rows": [line.as_json() for line in lines],
        }
        write_json(output, content)  # after every row: what was measured is not lost with the rest
    console.print(as_table(lines, f"{threads} threads, {settings.repeats} turns"))
    for note in notes(lines):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    output.with_suffix(".md").write_text(as_markdown(lines) + "\n", encoding="utf-8")
    console.print(f"figures: {output}, {output.with_suffix('.md').name}", highlight=False)
    return int(any(line.outcome in ("refused", "failed") for line in lines))


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Settings)))
    except ValueError as error:
        sys.exit(f"benchmarks: {error}")
