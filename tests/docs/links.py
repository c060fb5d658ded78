"""Every link between the Markdown files of the repository leads somewhere: the file is there, and so is the heading behind a #."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])


def headings(path):
    """As GitHub makes anchors of them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", text, re.M)}


pages = [path for path in root.rglob("*.md") if not any(part.startswith((".", "build")) for part in path.relative_to(root).parts)]
links = broken = 0
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        links += 1
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in headings(there)):
            broken += 1
            print(f"{page.relative_to(root)}: ({target}) leads nowhere")
print(f"{links} links in {len(pages)} pages, {broken} broken")
sys.exit(broken > 0 or links < 50)
