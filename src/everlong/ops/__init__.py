"""The recurrences: each a folder of backends that agree on outputs, final state and every gradient."""
