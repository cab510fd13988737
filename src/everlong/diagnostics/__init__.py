"""Measures on one model, and the verdict: position-wise loss, paired excess loss, comparisons of models."""
