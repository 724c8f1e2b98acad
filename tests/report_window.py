"""A page of a report in a real browser, and what its makers throw at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from playwright.sync_api import Browser, Page, expect

#: A busy machine is slow, not wrong: what is expected of a page comes at once or within this, in milliseconds.
PATIENCE = 120_000
expect.set_options(timeout=PATIENCE)

#: Hostile to whoever puts it into a page, a script or an attribute.
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> javascript:alert(1)"
)


class Window:
    """A page that was opened from its file, and everything that it complained about or asked the network for."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def again(self, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> None:
        """As a new one is, in the same process of the browser; but what a page has stored stays."""
        self.page.goto("about:blank")
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)
        self.complaints.clear()
        self.requests.clear()

    def check(self) -> None:
        """It has not complained, and has not asked for anything but one file."""
        assert self.complaints == []
        assert {url for url in self.requests if not url.startswith("file://")} == set()
        assert len({url.split("#")[0] for url in self.requests}) <= 1, "one file and nothing else"

    def open(self, file: Path, item: str = "") -> Page:
        link = f"#item={quote(item, safe='')}" if item else ""
        self.page.goto(f"file://{file}{link}")
        self.page.wait_for_selector("html[data-ready]")
        return self.page
