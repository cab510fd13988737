"""What the state is at the start of a training row: the interventions, and the zero control, behind one protocol."""
