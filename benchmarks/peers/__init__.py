"""What Everlong is measured against: other people's programs, each shown to compute the same before it is timed."""
