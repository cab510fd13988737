"""The registry of interventions, and ``create``. Free of torch until a member is asked for."""

from dataclasses import fields
from typing import Any

from everlong.errors import EverlongError
from everlong.registry import Registry

# name -> class(config, *, seed)
INTERVENTIONS = Registry(
    "method",
    {
        "burn_in": "everlong.interventions.burn_in:BurnIn",
        "correlated_noise": "everlong.interventions.correlated_noise:CorrelatedNoise",
        "fitted_noise": "everlong.interventions.fitted_noise:FittedNoise",
        "longer_context": "everlong.interventions.longer_context:LongerContext",
        "random_noise": "everlong.interventions.random_noise:RandomNoise",
        "state_passing": "everlong.interventions.state_passing:StatePassing",
        "tbtt": "everlong.interventions.tbtt:TBTT",
        "zero": "everlong.interventions.zero:Zero",
    },
)
CONFIGS = Registry(
    "method",
    {
        "burn_in": "everlong.interventions.config:BurnInConfig",
        "correlated_noise": "everlong.interventions.config:CorrelatedNoiseConfig",
        "fitted_noise": "everlong.interventions.config:FittedNoiseConfig",
        "longer_context": "everlong.interventions.config:LongerContextConfig",
        "random_noise": "everlong.interventions.config:RandomNoiseConfig",
        "state_passing": "everlong.interventions.config:StatePassingConfig",
        "tbtt": "everlong.interventions.config:TBTTConfig",
        "zero": "everlong.interventions.config:ZeroConfig",
    },
)


def create(method: str, *, seed: int, **settings: Any) -> Any:
    """An ``Intervention`` by name.

    Args:
        method: a name in the registry.
        seed: of its draws, 0 or more.
        settings: fields of its configuration to set otherwise than by default.

    Raises:
        EverlongError: an unknown name or setting, with the known ones, or a value out of range.
    """
    config = CONFIGS[method]
    known = [field.name for field in fields(config)]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise EverlongError(f"{method} has no setting {', '.join(unknown)}; known: {', '.join(known) or 'none'}")
    return INTERVENTIONS[method](config(**settings), seed=seed)
