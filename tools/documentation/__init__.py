"""The documentation site: what MkDocs is told, and the pictures of its gallery."""
