"""Writes the generated page that is kept in the repository: python -m devtools.documentation."""

from __future__ import annotations

from devtools.documentation.reference import REASONS_PAGE, reasons_page

REASONS_PAGE.write_text(reasons_page())
