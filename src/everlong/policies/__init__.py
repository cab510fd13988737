"""Policies of reading a long document: plans of reads, which ``everlong.reading`` alone executes. Free of torch."""
