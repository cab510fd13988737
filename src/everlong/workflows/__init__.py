"""What a verb does, callable from Python: diagnose, repair, train, report."""
