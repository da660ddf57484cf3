#!/usr/bin/env python3
"""Builds the site from `docs` with mdBook.

    tools/docs.py MDBOOK FOLDER     MDBOOK is the program; the site's first page is FOLDER/index.html

mdBook shows only pages that its table of contents lists. `docs/SUMMARY.md` lists those that people write; the pages that are
generated or numbered are added here, below the page of their folder. Links from a page to what lies outside of `docs` lead to
the repository, because the site does not have it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# The pages of folders that the table of contents gets from here, by the page below which they are listed.
FOLDERS = {
    "reference/README.md": ("reference/sources", "reference/transforms", "reference/sinks"),
    "decisions/README.md": ("decisions",),
}
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]*)")


def main():
    mdbook, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    source = folder.parent / "docs-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source)
    (source / "SUMMARY.md").write_text(contents())
    repository = tomllib.loads((DOCS / "book.toml").read_text())["output"]["html"]["git-repository-url"]
    for page in source.rglob("*.md"):
        page.write_text(LINK.sub(lambda found: found[1] + outside(page, found[2], source, repository), page.read_text()))
    subprocess.run([mdbook, "build", source, "--dest-dir", folder], check=True)


def contents():
    """The table of contents with the pages of the folders."""
    lines = []
    for line in (DOCS / "SUMMARY.md").read_text().splitlines():
        lines.append(line)
        for head, folders in FOLDERS.items():
            if f"({head})" in line:
                lines += [f"  - [{title(page)}]({page.relative_to(DOCS)})" for folder in folders for page in pages(folder)]
    return "\n".join(lines) + "\n"


def pages(folder):
    return sorted(page for page in (DOCS / folder).glob("*.md") if page.name != "README.md")


def title(page):
    """The heading of a page, without what only matters on the page itself."""
    heading = page.read_text().partition("\n")[0].lstrip("# ")
    return re.sub(r"`|\s*\(\w+\)$", "", heading)


def outside(page, link, source, repository):
    """The link, or an address in the repository if it leads out of the site."""
    target = (page.parent / link).resolve()
    if target.is_relative_to(source):
        return link
    original = DOCS / page.relative_to(source)
    return f"{repository}/blob/main/{(original.parent / link).resolve().relative_to(ROOT)}"


if __name__ == "__main__":
    main()
