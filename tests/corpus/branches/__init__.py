"""Reducers that branch: wrong on one branch only, and right ones with the same branches."""
