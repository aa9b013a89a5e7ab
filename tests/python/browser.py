"""Holds pages of the audit against a real browser: `browser.py OUT PAGE.html ...` (see tests/browser.sh).

Speaks WebDriver to chromedriver with the standard library alone. Ends with code 1 and a line for each fault.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars",
]
WIDTHS = [1280, 400]
MOST_BYTES = 1_000_000
SECTIONS = 11
# Taller pictures are cut into pieces of this height, so that one can look at them.
PIECE = 1600


class Browser:
    """A session of Chromium, with or without scripts, in a profile of its own."""

    def __init__(self, driver, scripts):
        self.base = driver
        self.profile = tempfile.mkdtemp(prefix="overturn-browser-")
        options = {"args": [*FLAGS, f"--user-data-dir={self.profile}"]}
        if not scripts:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        found = self.post("/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base = f"{driver}/session/{found['sessionId']}"
        # The browser's own first page is not ours: what it asks for and logs is not either.
        self.post("/url", {"url": "about:blank"})
        for kind in ("performance", "browser"):
            self.log(kind)

    def post(self, path, body):
        request = urllib.request.Request(
            self.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:400]}") from error

    def cdp(self, command, **parameters):
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def run(self, script, *arguments):
        return self.post("/execute/sync", {"script": script, "args": list(arguments)})

    def log(self, kind):
        return self.post("/se/log", {"type": kind})

    def open(self, page):
        self.post("/url", {"url": page.as_uri()})

    def close(self):
        urllib.request.urlopen(urllib.request.Request(self.base, method="DELETE"), timeout=30).close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def show(self, width, scheme):
        """Sets the width of the window and light or dark."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.cdp("Emulation.setEmulatedMedia", media="screen",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])

    def pictures(self, path):
        """The whole page, in pieces."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        top, number = 0, 0
        while top < size["height"]:
            height = min(PIECE, size["height"] - top)
            clip = {"x": 0, "y": top, "width": size["width"], "height": height, "scale": 1}
            taken = self.cdp("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
            name = path.with_name(f"{path.name}-{number:02}.png")
            name.write_bytes(base64.b64decode(taken["data"]))
            top, number = top + PIECE, number + 1


class Check:
    """Gathers faults of a page."""

    def __init__(self, page):
        self.page, self.faults, self.passed = page, [], 0

    def hold(self, what, truth, found=""):
        self.passed += 1
        if not truth:
            self.faults.append(f"{self.page.name}: {what}{f': {found}' if found else ''}")


def requests(browser):
    """Addresses that the page asked for."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    return [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]


def errors(browser):
    return [entry["message"] for entry in browser.log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def check_quiet(browser, check, name):
    foreign = [url for url in requests(browser) if url != check.page.as_uri() and not url.startswith("data:")]
    check.hold(f"{name}: asks for nothing but itself", not foreign, foreign[:3])
    logged = errors(browser)
    check.hold(f"{name}: no error in the console", not logged, logged[:3])


FIGURES = """
return Array.from(document.querySelectorAll('figure')).map(function (figure) {
  var svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  var labelled = svg.getAttribute('aria-labelledby').split(' ').map(function (id) {
    return document.getElementById(id) ? document.getElementById(id).textContent.length : 0; });
  return { id: figure.id, width: box.width, height: box.height, labelled: labelled,
    rows: figure.querySelectorAll('details tbody tr').length, open: figure.querySelector('details').open,
    outside: Array.from(svg.querySelectorAll('text')).filter(function (text) {
      var of = text.getBoundingClientRect();
      return of.left < box.left - 2 || of.right > box.right + 2 || of.bottom > box.bottom + 2; })
      .map(function (text) { return text.textContent; }) };
});"""

# Text of an element against the first colour behind it, as WCAG counts contrast.
CONTRAST = """
function parse(c) { var m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m; }
function light(c) { var l = c.slice(0, 3).map(function (v) { v /= 255;
  return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); });
  return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; }
function behind(e) { for (; e; e = e.parentElement) { var c = parse(getComputedStyle(e).backgroundColor);
  if (c) { return c; } } return [255, 255, 255]; }
var worst = { ratio: 99 };
document.querySelectorAll('p, td, th, dt, dd, li, h1, h2, h3, figcaption, summary, code, svg text').forEach(function (e) {
  if (!e.textContent.trim() || !e.getClientRects().length) { return; }
  var style = getComputedStyle(e), svg = e.ownerSVGElement;
  var a = light(parse(svg ? style.fill : style.color)), b = light(behind(svg || e));
  var ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst.ratio) { worst = { ratio: ratio, text: e.textContent.slice(0, 40), tag: e.tagName }; }
});
return worst;"""


def check_look(browser, check, out):
    """Every width, light and dark."""
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            browser.show(width, scheme)
            name = f"{width} {scheme}"
            wide = browser.run("return document.documentElement.scrollWidth")
            check.hold(f"{name}: does not scroll sideways", wide <= width, wide)
            for figure in browser.run(FIGURES):
                what = f"{name}: {figure['id']}"
                check.hold(f"{what} is drawn", figure["width"] > 200 and figure["height"] > 20, figure)
                check.hold(f"{what} has a title and a description", min(figure["labelled"]) > 0)
                check.hold(f"{what} has its data", figure["rows"] > 0 and not figure["open"])
                check.hold(f"{what} keeps its texts inside", not figure["outside"], figure["outside"][:3])
            worst = browser.run(CONTRAST)
            check.hold(f"{name}: contrast of text is at least 4.5", worst["ratio"] >= 4.5, worst)
            small = browser.run(
                "return Math.min.apply(null, Array.from(document.querySelectorAll('svg')).map(function (svg) {"
                " return 12.5 * svg.getBoundingClientRect().width / 480; }).concat(99))")
            check.hold(f"{name}: text of charts has at least 8 pixels", small >= 8, small)
            browser.pictures(out / f"{check.page.stem}-{width}-{scheme}")


def check_search(browser, check):
    """Rows can be found where there are any, by key and by any other text."""
    rows = browser.run("return Array.from(document.querySelectorAll('#sample tbody tr')).map("
                       "function (row) { return row.cells[0].textContent; })")
    if not rows:
        check.hold("no search without rows", browser.run("return !document.querySelector('form.lookup')"))
        return
    search = """
      var input = document.querySelector('#key'); input.value = arguments[0];
      input.dispatchEvent(new Event('input'));
      return { shown: Array.from(document.querySelectorAll('#sample tbody tr')).filter(function (row) {
          return row.getClientRects().length > 0; }).map(function (row) { return row.cells[0].textContent; }),
        said: document.querySelector('form.lookup output').textContent,
        form: document.querySelector('form.lookup').getClientRects().length };"""
    key = rows[len(rows) // 2]
    found = browser.run(search, key)
    check.hold("search is offered", found["form"] > 0)
    check.hold("search finds a key", key in found["shown"], found)
    check.hold("search leaves others out", len(found["shown"]) < len(rows) or len(rows) == 1, len(found["shown"]))
    check.hold("search says how many", found["said"].startswith(str(len(found["shown"]))), found["said"])
    check.hold("search finds nothing that is not there", browser.run(search, "no such key")["shown"] == [])
    check.hold("search ends", browser.run(search, "")["shown"] == rows)


def check_print(browser, check, out):
    """The PDF has every section and, in it, every table that was closed."""
    titles = browser.run("return Array.from(document.querySelectorAll('h2[id]')).map("
                         "function (h) { return h.lastChild.textContent.trim(); })")
    browser.cdp("Emulation.setEmulatedMedia", media="print")
    hidden = browser.run(
        "return Array.from(document.querySelectorAll('details table')).filter(function (table) {"
        " return table.getBoundingClientRect().height < 10 || !table.checkVisibility({ contentVisibilityAuto: true });"
        " }).length")
    check.hold("print opens the details", hidden == 0, hidden)
    made = browser.cdp("Page.printToPDF", printBackground=True, preferCSSPageSize=True, paperWidth=8.27,
                       paperHeight=11.69, generateDocumentOutline=True, generateTaggedPDF=True)
    pdf = base64.b64decode(made["data"])
    (out / f"{check.page.stem}.pdf").write_bytes(pdf)
    # The outline's titles stand uncompressed, as text or as UTF-16 in hexadecimal.
    outline = [title.decode("latin-1") for title in re.findall(rb"/Title \((.*?)(?<!\\)\)", pdf, re.S)]
    outline += [bytes.fromhex(title.decode()).decode("utf-16-be", "replace")
                for title in re.findall(rb"/Title <FEFF([0-9A-Fa-f]+)>", pdf)]
    check.hold("the PDF has eleven sections", len(titles) == SECTIONS, titles)
    for title in titles:
        check.hold(f"the PDF has the section {title!r}", any(title in entry for entry in outline), outline[:20])
    pages = len(re.findall(rb"/Type /Page\b", pdf))
    check.hold("the PDF has pages", pages > 1, pages)
    browser.cdp("Emulation.setEmulatedMedia", media="screen")
    return pages


def check_page(driver, page, out):
    check = Check(page)
    size = page.stat().st_size
    check.hold("is smaller than 1 MB", size < MOST_BYTES, size)
    browser = Browser(driver, scripts=True)
    try:
        browser.open(page)
        check_quiet(browser, check, "with scripts")
        check_look(browser, check, out)
        check_search(browser, check)
        pages = check_print(browser, check, out)
        check_quiet(browser, check, "in the end")
    finally:
        browser.close()
    browser = Browser(driver, scripts=False)
    try:
        browser.open(page)
        check_quiet(browser, check, "without scripts")
        document = browser.cdp("DOM.getDocument", depth=0)["root"]["nodeId"]

        def number(selector):
            found = browser.cdp("DOM.querySelectorAll", nodeId=document, selector=selector)
            return len(found["nodeIds"])

        check.hold("without scripts there are eleven sections", number("main section > h2") == SECTIONS)
        check.hold("without scripts there is no search box", number("form.lookup:not([hidden])") == 0)
        check.hold("without scripts every chart has its data",
                   number("figure") == number("figure svg") == number("figure details tbody"))
        browser.show(1280, "light")
        browser.pictures(out / f"{page.stem}-no-script")
    finally:
        browser.close()
    print(json.dumps({"page": page.name, "bytes": size, "pdf_pages": pages, "checks": check.passed,
                      "faults": len(check.faults)}), flush=True)
    return check.faults


def main():
    out, pages = Path(sys.argv[1]).resolve(), [Path(page).resolve() for page in sys.argv[2:]]
    if not pages:
        sys.exit("error: no page")
    port = "9517"
    driver = subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=SEVERE"], stdout=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(f"{base}/status", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        faults = [fault for page in pages for fault in check_page(base, page, out)]
    finally:
        driver.terminate()
        driver.wait()
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
