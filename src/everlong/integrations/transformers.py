"""transformers: a Trainer that trains Everlong's models with any intervention. docs/trainer.md shows it.

    batch -> initial state -> model -> loss -> backward -> intervention.observe(final state)

Evaluation starts from the zero state. The rows of an optimizer step are numbered in the order of the data set: part by
part of its gradient accumulation, in each part process by process. So any number of processes and parts that read the
same rows in a step gives the same run, and a row's carried state stays with its process.
"""

import logging
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.errors import EverlongError
from everlong.integrations._carried_file import carried_for, write_carried
from everlong.integrations._columns import COLUMNS, batch_of
from everlong.integrations._places import Places
from everlong.integrations._trainer_checks import check_arguments, check_data, check_row_length, short_step
from everlong.interventions._protocol import Intervention
from everlong.interventions.exposure import token_ages
from everlong.loading import open_model, save
from everlong.models._weight_decay import decays
from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.rows import as_read, cross_entropy, read
from everlong.state import RecurrentState

logger = logging.getLogger(__name__)

Order = Literal["shuffled", "contiguous", "packed"]
FOLLOWING = "trainer.following"
MODEL_FILES = ("config.json", "model.safetensors")


class _Adapter(nn.Module):
    """The model as the Trainer wraps it: without ``config``, in which the Trainer would write."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, state: RecurrentState | None, resets: Tensor | None) -> LanguageModelOutput:
        """Reads tokens; the final state is in the dtypes of the model's specification, whatever was computed in."""
        output = self.model(tokens, state, resets=resets)
        leaves = tuple(tensor.to(leaf.dtype) for leaf, tensor in output.state.items())
        return LanguageModelOutput(output.logits, RecurrentState(output.state.spec, leaves))


class StatefulTrainer(Trainer):
    """A transformers Trainer whose training rows start from the states that an intervention gives.

    A row of the data is a dictionary, or a row of a ``datasets.Dataset``, of

        input_ids     [T], the tokens; all rows of a batch have one length, none is padded
        labels        [T], as in transformers: input_ids again, -100 where a token is not scored. They are shifted here:
                      the logits after token t are scored on label t + 1. So the first label never counts, and a row of
                      T tokens has T - 1 targets
        shift_labels  [T], in place of labels: the token after each input, as ``everlong.data.batch.Batch`` has it
        starts        optional, True for a row that begins at its document's first token
        resets        optional, [T], True at the first token of each document. Inside the row it starts from zero there,
                      and no label is predicted across; one at the row's first token is the same as ``starts``

    The default collator stacks such rows; other columns are left out. The loss of a step is the mean over all its
    scored targets, over parts and processes.

    Args:
        model: an Everlong model, or what ``everlong.loading.open_model`` gives, whose context and tokenizer then stand
            in the checkpoints' config.json.
        args: those of transformers; ``ddp_find_unused_parameters`` becomes False where it is not set.
        intervention: decides what state each row starts from (``everlong.interventions.methods.create``).
        data_order: the order in which the training rows come: "contiguous" where row r of a step goes on in the same
            document as row r of the step before, or begins a document and says so in ``starts``. A data set that has an
            attribute ``data_order``, as ``OrderedRows`` does, says it itself.
        context: the training length in tokens, which stands in the checkpoints' config.json; None: that of the model
            which ``open_model`` gave. Rows of several training lengths, or with a prefix, are held against it.
        trainer: further arguments of Trainer, by name.

    Attributes:
        language_model: the model that is trained; ``model`` is what the Trainer sees of it.
        intervention: as given.

    Raises:
        EverlongError: the model is not Everlong's, or an argument cannot be served.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: nn.Module | Checkpoint,
        args: TrainingArguments,
        *,
        intervention: Intervention,
        data_order: Order = "shuffled",
        context: int | None = None,
        **trainer: Any,
    ):
        self._context, self._tokenizer = context, None
        if isinstance(model, Checkpoint):
            self._context = model.context if context is None else context
            self._tokenizer, model = model.tokenizer, model.model
        if not isinstance(model, LanguageModel):
            raise EverlongError(
                f"the model is a {type(model).__name__}; StatefulTrainer trains Everlong's: everlong.load(MODEL) reads "
                "Mamba, Mamba-2, GLA and RWKV-6 in the formats of transformers and others"
            )
        check_arguments(args, trainer)
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = False  # every parameter has a part in the logits
        self.language_model, self.intervention, self._data_order = model, intervention, data_order
        super().__init__(_Adapter(model), args, **trainer)
        intervention.sum_over_processes = self._sum
        self._fresh = intervention.state_dict()
        self._places = Places(
            size=args.per_device_train_batch_size,
            parts=args.gradient_accumulation_steps,
            processes=args.world_size,
            rank=args.process_index,
            method=intervention.name if intervention.data_order == "contiguous" else None,
        )
        self._ended: tuple[RecurrentState, Int[Tensor, " B"]] | None = None  # the rows that were read last, and ages

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """As of Trainer; what was carried begins anew, or is that of the checkpoint."""
        self.intervention.load_state_dict(self._fresh)
        self._places.begin_anew()
        return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)

    def get_train_dataloader(self) -> DataLoader:
        """As of Trainer, once the rows are known to come in the order and number that the intervention needs."""
        check_data(
            self.train_dataset,
            self.args,
            self.intervention,
            stated=self._data_order,
            rows_per_step=self._places.count,
            context=self._context,
        )
        return super().get_train_dataloader()

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One part of a step: forward, backward, and the intervention is shown the final states."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        assert self._ended is not None
        self.intervention.observe(*self._ended)
        self._ended = None
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """This part's share of the step's loss, from the states that the intervention gives."""
        assert num_items_in_batch is not None
        intervention, step = self.intervention, self.state.global_step
        batch = as_read(self._places.next(step, inputs), intervention, step)
        check_row_length(batch.tokens.shape[1], intervention, self._context)
        initial = intervention.initial_state(batch.starts, self.language_model.state_spec, step, batch.rows)
        resets = None if batch.resets is None else batch.resets.cpu().numpy()
        met = token_ages(intervention.ages(batch.rows).numpy(), batch.tokens.shape[1], resets)
        reading = read(model, batch, initial, intervention)
        self._ended = (reading.state.detach(), torch.from_numpy(met[:, -1] + 1))
        nats = cross_entropy(reading.logits, reading.targets, reading.scored)
        loss = nats / num_items_in_batch * self.args.world_size  # of which the mean over the processes is taken
        return (loss, reading) if return_outputs else loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Reads rows from the zero state; returns the mean loss, the logits, and the labels as they were given."""
        inputs = self._prepare_inputs(inputs)
        batch = batch_of(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            output = model(batch.tokens, None, resets=batch.resets)
            loss = cross_entropy(output.logits, batch.targets, batch.loss_mask) / batch.scored_tokens
        if prediction_loss_only:
            return loss, None, None
        labels = inputs["shift_labels"] if inputs.get("labels") is None else inputs["labels"]
        return loss, output.logits, labels

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> Tensor | None:
        """Scored targets of a step, over its parts and all processes."""
        if not batch_samples:
            return None
        needed = self.args.gradient_accumulation_steps
        if len(batch_samples) != needed:  # where the data do not say their length, this is known only here
            raise short_step(len(batch_samples), needed)
        step = self.state.global_step
        parts = [as_read(batch_of(columns), self.intervention, step) for columns in batch_samples]
        scored = self._sum(torch.tensor(sum(part.scored_tokens for part in parts), device=device))
        if not scored:
            raise EverlongError(f"no target of step {step} is scored: its loss is undefined")
        return scored

    def _sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, where the tensor is."""
        if self.args.world_size == 1:
            return tensor
        return cast(Tensor, self.accelerator.reduce(tensor.to(self.args.device), "sum")).to(tensor.device)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """The model in Everlong's own format, into a folder that may be there; no pickled arguments beside it."""
        if not self.args.should_save:
            return
        folder = Path(output_dir or cast(str, self.args.output_dir))
        partial = folder / ".everlong-model"
        shutil.rmtree(partial, ignore_errors=True)
        save(self.language_model, partial, format="everlong", context=self._context, tokenizer=self._tokenizer)
        for name in MODEL_FILES:
            os.replace(partial / name, folder / name)
        partial.rmdir()
        if self.processing_class is not None:
            cast(Any, self.processing_class).save_pretrained(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The weights of a checkpoint, into the model that is there."""
        ours = self.language_model
        found = open_model(resume_from_checkpoint, backend=ours.backend, dtype=ours.dtype).model
        if found.config != ours.config:
            before, now = asdict(found.config), asdict(ours.config)
            changed = [f"{name} {now.get(name)}, was {old}" for name, old in before.items() if now.get(name) != old]
            named = "; ".join(changed) or f"{ours.config.architecture}, was {found.config.architecture}"
            raise EverlongError(f"{resume_from_checkpoint} is another model's checkpoint: {named}")
        ours.load_state_dict(found.state_dict())

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(cast(str, self.state.best_model_checkpoint))

    def _save_rng_state(self, output_dir: str) -> None:
        """Beside the Trainer's own random streams, on every process: what its rows carry."""
        super()._save_rng_state(output_dir)
        values = {**self.intervention.state_dict(), FOLLOWING: self._places.following}
        own, processes = self._places.own.tolist(), self.args.world_size
        write_carried(output_dir, self.args.process_index, values, own, processes, self._settings())

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Beside the optimizer: what the rows of this process carried, whichever processes had them then."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        parts = carried_for(checkpoint, self.args.process_index, self._places.own.tolist(), self._settings())
        following = [part.pop(FOLLOWING) for part in parts]
        self._places.following = torch.stack(following).amax(0)  # what a process does not know is negative there
        values = parts[0] if len(parts) == 1 else self.intervention.regrouped(parts, self._places.own)
        if len(parts) > 1:
            kept = "each row keeps its state" if values is not None else f"what {self.intervention.name} kept is lost"
            logger.warning(f"{checkpoint} was written by {len(parts)} processes, otherwise than now: {kept}")
        self.intervention.load_state_dict(self._fresh if values is None else values)

    def _settings(self) -> dict[str, Any]:
        """What a resume must find unchanged."""
        return {"step": self.state.global_step, "rows_per_step": self._places.count, **self.intervention.settings()}

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = list(COLUMNS)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The parameters that weight decay falls on, as in Everlong's own optimizer."""
        return [name for name, parameter in model.named_parameters() if decays(name, parameter)]
