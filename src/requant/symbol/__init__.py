"""symbol."""
