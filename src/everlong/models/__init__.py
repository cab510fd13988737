"""Language models behind one contract: ``model(tokens, state) -> logits and the complete final state``."""
