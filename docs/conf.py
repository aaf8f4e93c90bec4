"""The documentation site: Sphinx with furo and MyST. ``tox -e docs`` builds it without network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from aggverify import __version__

project = "aggverify"
author = "the aggverify contributors"
copyright = author
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
exclude_patterns = ["_build", "extending/code"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
add_module_names = False
autodoc_member_order = "bysource"
smartquotes = False  # `--mode` stays as it is typed
highlight_language = "none"
html_theme = "furo"
html_title = f"aggverify {__version__}"
html_static_path = ["static"]
html_css_files = ["aggverify.css"]
html_show_copyright = False
html_copy_source = False
