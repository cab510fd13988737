"""The rows of the table: a file a subject, a function a measurement, its target beside it in ``benchmarks.table``."""
