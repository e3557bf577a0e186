"""Every relative link in a Markdown file leads to a file or folder."""

import re
from pathlib import Path

import pytest
from layout import ROOT

PLACES = ("*.md", "docs/**/*.md", "packages/*/*.md", "examples/**/*.md", "tools/**/*.md")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert missing == [], f"{page} links to what is not there"
