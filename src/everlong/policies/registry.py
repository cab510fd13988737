"""The registry of reading policies; each class has ``for_context(context)``, its form for a training length."""

from everlong.registry import Registry

POLICIES = Registry(
    "policy",
    {
        "carry": "everlong.policies.carry:Carry",
        "recentre": "everlong.policies.recentre:Recentre",
        "restart": "everlong.policies.restart:Restart",
        "window": "everlong.policies.window:Window",
    },
)
