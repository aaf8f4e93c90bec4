"""Verdicts that hold the product's power while its inside changes."""
