"""The manifest: what a user applies, field for field the CRD's spec."""
