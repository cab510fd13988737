"""What StatefulTrainer refuses before any work: arguments and data that would move rows out of their places."""

from collections.abc import Mapping
from typing import Any, cast

from torch.utils.data import IterableDataset
from transformers import TrainingArguments

from everlong.errors import EverlongError
from everlong.interventions._protocol import Intervention


def check_arguments(args: TrainingArguments, trainer: Mapping[str, Any]) -> None:
    """Refuses what would change the rows, the loss or the model behind the intervention's back.

    Args:
        args: those of transformers.
        trainer: further arguments of Trainer, by name.

    Raises:
        EverlongError: an argument that cannot be served, by name.
    """
    own_loop = "everlong's own loop has it"
    refused = {
        "n_gpu > 1 (DataParallel)": (args.n_gpu > 1, "start one process a GPU with torchrun"),
        "activation_checkpointing": (args.activation_checkpointing, own_loop),
        "auto_find_batch_size": (args.auto_find_batch_size, "set per_device_train_batch_size"),
        "average_tokens_across_devices=False": (
            not args.average_tokens_across_devices,
            "the loss is the mean over the scored targets of all processes",
        ),
        "compute_loss_func": (trainer.get("compute_loss_func"), "mask targets with -100"),
        "deepspeed": (args.deepspeed, "start DDP with torchrun"),
        "fsdp": (args.fsdp, own_loop),
        "label_smoothing_factor": (args.label_smoothing_factor, "set it to 0"),
        "model_init": (trainer.get("model_init"), "give the model"),
        "neftune_noise_alpha": (args.neftune_noise_alpha is not None, "leave it out"),
        "split_batches": (cast(Any, args.accelerator_config).split_batches, "leave it False"),
        "use_liger_kernel": (args.use_liger_kernel, "leave it False"),
    }
    for name, (given, instead) in refused.items():
        if given:
            raise EverlongError(f"StatefulTrainer does not take {name}: {instead}")


def check_data(
    data: Any,
    args: TrainingArguments,
    intervention: Intervention,
    *,
    stated: str,
    rows_per_step: int,
    context: int | None,
) -> None:
    """Refuses training rows that come in another order or number than is needed.

    Args:
        data: the training data set.
        args: those of transformers.
        intervention: what needs the order.
        stated: the order that the data come in, where they do not say it themselves.
        rows_per_step: what all processes read in an optimizer step.
        context: the training length in tokens; None: not known.

    Raises:
        EverlongError: another order, a shuffled stream, another number of rows a step, a last batch or step of fewer
            rows, or rows of several training lengths where that is not known.
    """
    if intervention.row_contexts > 1 and context is None:
        raise EverlongError(
            f"the method {intervention.name} reads rows of {intervention.row_contexts} training lengths, and the "
            "model does not say at which length it is trained: give context=, in tokens"
        )
    if intervention.prefill_steps:
        raise EverlongError(
            f"StatefulTrainer does not take prefill_steps={intervention.prefill_steps}: everlong's own loop has it"
        )
    order = getattr(data, "data_order", stated)
    if intervention.data_order not in ("any", order):
        raise EverlongError(
            f"the method {intervention.name} needs the data order {intervention.data_order!r}, the rows come in "
            f"{order!r} order: choose another method, or give data in that order (and data_order=, which says so)"
        )
    strategy = str(args.train_sampling_strategy)
    if order == "contiguous" and strategy != "sequential" and not isinstance(data, IterableDataset):
        raise EverlongError(
            f"the rows are in contiguous order, which train_sampling_strategy={strategy!r} would break: give "
            "train_sampling_strategy='sequential'"
        )
    wanted = getattr(data, "rows_per_step", rows_per_step)
    if wanted != rows_per_step:
        raise EverlongError(
            f"the data have {wanted} rows a step, the processes read {rows_per_step}: per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x gradient_accumulation_steps {args.gradient_accumulation_steps} x "
            f"{args.world_size} processes"
        )
    part = args.world_size * args.per_device_train_batch_size
    count = len(cast(Any, data)) if hasattr(data, "__len__") else 0
    left = count % part
    if left and not args.dataloader_drop_last:
        raise EverlongError(
            f"the last batch of an epoch would have {left} rows, of {count}, where every one needs {part}: give "
            "dataloader_drop_last=True"
        )
    steps, left = divmod(count // part * part, rows_per_step)
    if left and not 0 < args.max_steps <= steps:  # with fewer steps, an epoch's end is not reached
        raise short_step(left // part, args.gradient_accumulation_steps)


def short_step(parts: int, needed: int) -> EverlongError:
    """The error for an epoch's last step that has fewer parts than the others: some rows would not be read in it."""
    return EverlongError(
        f"the last step of an epoch would have {parts} parts, where every one needs gradient_accumulation_steps "
        f"{needed}: give as many rows as come out whole, or stop before it with max_steps"
    )


def check_row_length(length: int, intervention: Intervention, context: int | None) -> None:
    """Refuses rows that are not what a method reads: in ordinary ones, ``longer_context`` would be the zero control.

    Args:
        length: tokens of the rows.
        intervention: which may read several training lengths a row, or a prefix.
        context: the training length in tokens; None: not known.

    Raises:
        EverlongError: rows of another length than the method needs for this training length.
    """
    if context is None or (intervention.row_contexts == 1 and not intervention.unscored_prefix):
        return
    wanted = intervention.row_length(context)
    if length != wanted:
        raise EverlongError(
            f"the rows have {length} tokens, the method {intervention.name} reads {wanted} for a training length of "
            f"{context}: give rows of {wanted} tokens, or another context="
        )
