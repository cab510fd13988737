"""The registry of tasks. Free of torch until a member is asked for."""

from everlong.registry import Registry

# name -> class(config, tokenizer, *, training), its config the field of TasksConfig with its name
TASKS = Registry(
    "task",
    {
        "babilong": "everlong.tasks.babilong:BABILong",
        "copying": "everlong.tasks.copying:Copying",
        "passkey": "everlong.tasks.passkey:Passkey",
        "recall": "everlong.tasks.recall:Recall",
    },
)
