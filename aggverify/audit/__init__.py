"""A training run itself: the weights that its own backward passes gave, held to the mode.

``recorder``, ``reduction`` and ``probe_points`` run in the trainer's processes; all else starts
them, or reads what they wrote.
"""
