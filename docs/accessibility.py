"""Look for accessibility faults with axe-core: `python docs/accessibility.py [PAGE …]`, after `make docs`.

It opens the site, the playground and any other pages in headless Chromium, light and dark. The exit code is 1 if there
is a serious fault. axe-core comes from npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parents[1]
SITE = HERE / "build" / "site"
AXE = "axe-core@4"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
RUN = "axe.run(document, { resultTypes: ['violations'] })"


def axe() -> str:
    """The program, from the registry of npm."""
    folder = HERE / "build" / "axe"
    script = folder / "package" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as archive:
            archive.extractall(folder, filter="data")
    return script.read_text(encoding="utf-8")


def main() -> int:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None or shutil.which("npm") is None:
        print("Skipped: it needs Chromium and npm (Debian: apt-get install chromium npm).")
        return 0
    pages = [*(page for page in sorted(SITE.rglob("*.html")) if page.name != "404.html"), *map(Path, sys.argv[1:])]
    if not pages:
        print("There is no site. Run `make docs` first.", file=sys.stderr)
        return 2
    program, faults = axe(), 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            for file in pages:
                page.goto(file.resolve().as_uri())
                page.wait_for_timeout(200)
                page.evaluate(program)
                for fault in page.evaluate(RUN)["violations"]:
                    if fault["impact"] in ("serious", "critical"):
                        faults += 1
                        example = fault["nodes"][0]["html"][:120]
                        print(f"{file.name} ({scheme}): {fault['id']}, {len(fault['nodes'])} times, such as {example}")
        browser.close()
    print(f"{2 * len(pages)} views, {faults} serious faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
