"""Markets of whole nodes, as for the tests of hosted work."""

from __future__ import annotations

from modules.arca.work.conftest import made

__all__ = ["made"]
