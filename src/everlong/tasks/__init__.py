"""Long-context tasks: examples of an exact length, for any tokenizer, with a scorer and the floors beside it."""
