"""The registry of measures; each is called with an ``Examination`` and a ``MeasuresConfig`` and returns its record."""

from everlong.registry import Registry

MEASURES = Registry(
    "measure",
    {
        "effective_remembrance": "everlong.diagnostics.effective_remembrance:effective_remembrance",
        "state_statistics": "everlong.diagnostics.state_statistics:state_statistics",
    },
)
