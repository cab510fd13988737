"""Everlong inside other libraries, each an extra; nothing here is imported unless it is asked for."""
