"""`everlong train`."""

from rich.console import Console

from everlong.workflows.config import TrainConfig


def run(config: TrainConfig) -> int:
    """Trains, and prints where the model lies and the path of the page."""
    from everlong.workflows.train import train

    record, page = train(config)
    console = Console()
    trained, skipped = record.steps - record.skipped_steps, ""
    if record.skipped_steps:
        skipped = f" ({record.skipped_steps:,} of {record.steps:,} were skipped: something in them was not finite)"
    console.print(
        f"Trained {trained:,} steps on {record.scored_tokens:,} tokens in {record.seconds:.0f} s{skipped}: "
        f"loss {record.first_loss:.3f} to {record.final_loss:.3f} nats. The model: {page.parent / record.model_folder}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    console.print(str(page), soft_wrap=True, highlight=False, markup=False)
    return 0
