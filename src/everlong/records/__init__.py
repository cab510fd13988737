"""Typed records of everything that was measured. Free of torch."""
