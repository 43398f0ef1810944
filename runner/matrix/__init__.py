"""What is asked? `matrix.yaml`: read, checked, expanded."""
