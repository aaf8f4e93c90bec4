"""The parent's side of the ranks: run specs go out, executions come back, with every time limit."""
