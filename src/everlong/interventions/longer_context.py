"""A cheap rival of the repairs: train at a longer context, with fewer rows."""

from typing import ClassVar

from everlong.interventions.config import LongerContextConfig
from everlong.interventions.zero import Zero


class LongerContext(Zero):
    """Every row starts from zero, is ``factor`` training contexts long, and there are so many times fewer of them.

    So a step scores as many tokens as the others do, in longer rows: what a sceptic would do with the same budget. It
    needs more memory a row, and documents that are longer.
    """

    name: ClassVar[str] = "longer_context"

    def __init__(self, config: LongerContextConfig | None = None, *, seed: int):
        config = config or LongerContextConfig()
        super().__init__(config, seed=seed)
        self.row_contexts = config.factor
