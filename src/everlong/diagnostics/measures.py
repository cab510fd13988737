"""The registry of measures; each is called with an ``Examination`` and a ``MeasuresConfig`` and returns its record."""

from everlong.registry import Registry

MEASURES = Registry(
    "measure",
    {
        "decay_horizons": "everlong.diagnostics.decay_horizons:decay_horizons",
        "effective_remembrance": "everlong.diagnostics.effective_remembrance:effective_remembrance",
        "mean_drift": "everlong.diagnostics.mean_drift:mean_drift",
        "state_distance": "everlong.diagnostics.state_distance:state_distance",
        "state_statistics": "everlong.diagnostics.state_statistics:state_statistics",
        "transplant": "everlong.diagnostics.transplant:transplant",
        "used_memory": "everlong.diagnostics.used_memory:used_memory",
    },
)

QUICK_MEASURES = ("decay_horizons", "state_statistics", "used_memory")
"""Those that read little more than the documents themselves."""
