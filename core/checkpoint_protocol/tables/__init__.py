"""What a manifest says of a table, a module for each format: as a sink, and what source and sink have in common.

Each kind answers what is asked of all of them: `title` (None where there is no table), `uris` (by the field that holds them) and
`with_uris`. A sink also says its `modes`, whether it can be audited (`has_audit`), and names the module of the operator that
opens it, `committed_by`.
`records/formats/union.py` lists the kinds.
"""
