"""The command line: one file a verb. Help never imports torch."""
