"""A training run itself: the weights that its own backward passes gave, held to the mode.

``recorder`` and ``points`` run in the trainer's processes; all else reads what they wrote.
"""
