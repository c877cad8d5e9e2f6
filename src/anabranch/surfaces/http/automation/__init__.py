"""What begins runs by itself, over HTTP: schedules, triggers and the calls that fire them, and the
aliases they may name. What works beside the engine lives as long as the application."""
