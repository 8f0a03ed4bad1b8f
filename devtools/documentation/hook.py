"""The hook that mkdocs.yml names: adds the generated pages to those that lie in docs/."""

from __future__ import annotations

from importlib.metadata import version

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from devtools.documentation.reference import pages


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.copyright = f"Version {version('checkpointed-writes')}"
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
