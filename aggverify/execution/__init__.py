"""The parent's side of the ranks: trials go out, executions come back, with every time limit."""
