"""What large loads cost: formulas, and measurements beside them. See `docs/scale.md`."""
