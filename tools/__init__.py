"""What helps to work on the source and is not shipped."""
