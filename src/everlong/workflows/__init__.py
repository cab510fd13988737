"""What a verb does, callable from Python: convert, diagnose, doctor, repair, report, train."""
