"""Pages of the documentation that are made of the product: mkdocs asks for them when it builds (see mkdocs.yml)."""
