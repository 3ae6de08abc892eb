"""boolcp."""
