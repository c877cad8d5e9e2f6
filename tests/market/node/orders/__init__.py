"""Tests of orders and their executions."""
