"""What a run established: verdicts, stored cases, events, how sharp and how weak it was."""
