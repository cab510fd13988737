"""Reports: tables for the terminal, figures and one self-contained page, from the records of a run alone."""
