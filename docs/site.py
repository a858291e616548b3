"""What makes a site of these pages: files beyond docs/ that they link to come along."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_BEYOND = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file of the repository that a page links to.

    Raises:
        FileNotFoundError: there is no such file.
    """
    root = Path(config.docs_dir).parent
    for page in files.documentation_pages():
        for path in _BEYOND.findall(page.content_string):
            if not (root / path).is_file():
                raise FileNotFoundError(f"{page.src_uri}: there is no {path} in the repository")
            uri = f"repository/{path}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point these links at the files that came along."""
    return _BEYOND.sub(r"](repository/\1", markdown)
