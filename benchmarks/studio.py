"""How fast the studio is in a browser: `python benchmarks/studio.py` (Chromium, Playwright, a built page).

Every figure is beside what it must be. Most are taken inside the page, from an event to the end of the frame
that shows its effect, so that the driver's own time does not count. `--only NAME …` measures a part,
`--json FILE` keeps the figures. GPT-2 small has random weights, which take as long as the true ones.
"""

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

STORY = "Once upon a time there was a little girl who lived near the sea. "
SHORT = STORY * 4  # about 60 tokens
PATIENCE = 180_000  # milliseconds
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"

# Which comes first: probabilities, or a model that is ready.
FIRSTS = """(() => {
  window.firsts = [];
  const look = () => {
    for (const one of [".next li .share", ".dot.ready"])
      if (!window.firsts.includes(one) && document.querySelector(one)) window.firsts.push(one);
    if (window.firsts.length < 2) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
# From an action to the frame in which what it leads to is there.
UNTIL = """([action, selector]) => new Promise((done) => {
  const begun = performance.now();
  for (const key of action) dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const look = () => (document.querySelector(selector) ? done(performance.now() - begun) : requestAnimationFrame(look));
  requestAnimationFrame(look);
})"""
# From a pointer that enters to the end of the work for it: handlers, the new picture, its layout.
HOVER = """(selector) => {
  const times = [];
  for (const one of [...document.querySelectorAll(selector)].slice(0, 40)) {
    const begun = performance.now(), { x, y, width, height } = one.getBoundingClientRect();
    const where = { clientX: x + width / 2, clientY: y + height / 2, bubbles: true, pointerType: "mouse" };
    one.dispatchEvent(new PointerEvent("pointerenter", { ...where, bubbles: false }));
    for (const kind of ["pointerover", "pointermove"]) one.dispatchEvent(new PointerEvent(kind, where));
    document.body.offsetHeight;
    times.push(performance.now() - begun);
  }
  return times;
}"""
# The same over a picture, whose cells may be on a canvas: 40 places of it, each in another row.
OVER = """(selector) => {
  const svg = document.querySelector(selector), times = [];
  svg.scrollIntoView({ block: "center" });
  const { x, y, width, height } = svg.getBoundingClientRect();
  for (let n = 0; n < 40; n++) {
    const clientX = x + width * (0.2 + (0.6 * ((n * 7) % 40)) / 40), clientY = y + height * (0.2 + (0.6 * n) / 40);
    const target = document.elementFromPoint(clientX, clientY) ?? svg, begun = performance.now();
    target.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true, pointerType: "mouse" }));
    document.body.offsetHeight;
    times.push(performance.now() - begun);
  }
  return times;
}"""
# The server's stream, replaced by one of so many tokens a second; frames are counted while it is written.
STREAM = """([count, rate]) => {
  const real = window.fetch, encoder = new TextEncoder();
  const event = (n) => `data: ${JSON.stringify({ choices: [{ text: n % 9 ? " word" : ".", token_ids: [n % 4000], logprobs: { token_logprobs: [-(n % 14)] } }] })}\\n\\n`;
  window.fetch = (path, how) => {
    if (path !== "/v1/completions") return real(path, how);
    let sent = 0;
    const begun = performance.now();
    return Promise.resolve(new Response(new ReadableStream({
      async pull(controller) {
        await new Promise((done) => setTimeout(done, 2));
        const due = Math.min(count, Math.floor(((performance.now() - begun) / 1000) * rate));
        let text = "";
        while (sent < due) text += event(sent++);
        if (text) controller.enqueue(encoder.encode(text));
        if (sent === count) { window.took = performance.now() - begun; controller.close(); window.fetch = real; }
      },
    })));
  };
}"""
FRAMES = """() => new Promise((done) => {
  const times = []; let last = 0, seen = false;
  const busy = () => [...document.querySelectorAll("button")].some((one) => one.textContent === "Stop");
  const tick = (now) => {
    if (last && seen) times.push(now - last);
    last = now;
    seen ||= busy();
    if (seen && !busy()) done({ times, took: window.took }); else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true }));
})"""


@dataclass
class Report:
    """Figures, each with what it must not exceed."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, value: float, most: float, unit: str = "ms") -> None:
        """Keep a figure and print it."""
        self.rows.append({"name": name, "value": round(value, 1), "most": most, "unit": unit})
        sign = " " if value <= most else "!"
        print(f"{sign} {name:<62} {value:8.1f} {unit:<3} at most {most:g}", flush=True)


@dataclass(frozen=True)
class Bench:
    """A studio that runs, a page in which it is open, and what was measured."""

    process: "subprocess.Popen[str]"
    page: Any
    url: str
    report: Report

    def open(self, search: str, *, ready: bool = True) -> None:
        """Open an address of the studio."""
        self.page.goto(self.url + search)
        if ready:
            self.page.wait_for_selector(".dot.ready", timeout=PATIENCE)

    def until(self, keys: list[str], selector: str) -> float:
        """Milliseconds from keys to what they lead to."""
        return float(self.page.evaluate(UNTIL, [keys, selector]))

    def settle(self) -> None:
        """Wait until every picture is drawn."""
        self.page.wait_for_timeout(400)
        self.page.wait_for_selector(".figure.waiting", state="detached", timeout=PATIENCE)


@contextmanager
def studio(browser: Any, report: Report, *models: str) -> Iterator[Bench]:
    """`glass studio` as a process, with a page that has its cookie."""
    given = [word for model in models for word in ("-m", model)]
    command = [sys.executable, "-m", "glassformer", "studio", "--no-open", "--json", "--port", "0", *given]
    page = browser.new_context(bypass_csp=True, viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(FIRSTS)
    page.goto("data:text/html,<p>A browser that is in use has started its processes.")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        time.sleep(0.3)  # no browser is quicker to open an address that was printed
        page.goto(url)
        yield Bench(process, page, url.partition("#")[0], report)
    finally:
        process.terminate()
        process.wait(30)


# What is measured


def start(bench: Bench) -> None:
    """The first paint, alive before the model is loaded: this page was opened with the process."""
    bench.page.wait_for_selector(".dot.ready")
    bench.page.wait_for_function("() => window.firsts.length === 2")
    bench.report.add("first paint while the model is being loaded", bench.page.evaluate(PAINT), 200)
    alive = bench.page.evaluate("() => window.firsts[0]") == ".next li .share"
    bench.report.add("alive before the model is (1: no)", 0 if alive else 1, 0, "")
    paints = []
    for _ in range(5):
        bench.open("", ready=False)
        bench.page.wait_for_selector(".next li .share")
        paints.append(bench.page.evaluate(PAINT))
    bench.report.add("first paint, median of 5", statistics.median(paints), 200)
    script = next(Path(str(resources.files("glassformer.server") / "static" / "assets")).glob("index-*.js"))
    bench.report.add("first script, compressed", len(gzip.compress(script.read_bytes())) / 1000, 60, "kB")


GIVES = "() => document.querySelector('#said')?.textContent.includes('gives')"


def first_views(bench: Bench, name: str, most: float) -> None:
    """From the key that opens a page to its picture, of a text that was not looked at before."""
    for n, (view, key) in enumerate({"attention": "a", "lens": "l", "saliency": "s"}.items()):
        bench.open(f"?view=write&text={quote(f'{n} {SHORT}'.strip())}")
        bench.page.wait_for_selector(".rest:has-text('may be drawn')")
        begun = time.perf_counter()
        bench.page.keyboard.press("g")
        bench.page.keyboard.press(key)
        if view == "attention":
            bench.page.wait_for_function(GIVES)
        else:
            bench.page.wait_for_selector(f'[data-question="{view}"] .host svg')
        taken = (time.perf_counter() - begun) * 1000
        bench.report.add(f"{name}: first view of {view}, 60 tokens", taken, most)


def page_changes(bench: Bench, name: str, text: str) -> None:
    """From a key to the page, once it was open before: a second after the last one, and at once.

    Pictures of a long text may take longer than that second: the server still computes them.
    """
    bench.open(f"?view=write&text={quote(text)}")
    steps = [("t", "#pieces"), ("a", "#heads"), ("l", ".lens"), ("w", ".strip")]
    times = []
    for _ in range(5):
        for key, selector in steps:
            times.append((bench.until(["g", key], selector), selector))
            bench.page.wait_for_timeout(1000)
    slowest, where = max(times[len(steps) :])
    bench.report.add(f"{name}: page change, slowest of 16 ({where})", slowest, 150)
    hurried = [bench.until(["g", key], selector) for _ in range(4) for key, selector in steps]
    bench.report.add(f"{name}: page changes in a hurry, median of 16", statistics.median(hurried), 150)


def hovers(bench: Bench, name: str, text: str) -> None:
    """Over the tokens of a head, and over the cells of a picture."""
    bench.open(f"?view=attention&text={quote(text)}")
    bench.page.wait_for_function(GIVES)
    bench.settle()
    for what, script, selector in (
        ("a head's tokens", HOVER, ".flow .side button"),
        ("a picture", OVER, '[data-question="attention"] .host svg'),
    ):
        times = bench.page.evaluate(script, selector)
        bench.report.add(f"{name}: hover over {what}, 95 % of {len(times)}", percentile(times, 95), 16)


def streaming(bench: Bench) -> None:
    """A thousand tokens in half a second, five times."""
    frames, rates = [], []
    for _ in range(5):
        bench.open("")
        bench.page.wait_for_selector(".rest:has-text('may be drawn')")
        bench.page.evaluate(STREAM, [1000, 2000])
        found = bench.page.evaluate(FRAMES)
        frames += found["times"]
        rates.append(1000 / found["took"] * 1000)
    bench.report.add("2,000 tokens/s: frame, median", statistics.median(frames), 17)
    bench.report.add("2,000 tokens/s: frame, 95 %", percentile(frames, 95), 17)
    bench.report.add("2,000 tokens/s: slowest frame", max(frames), 34)
    bench.report.add("2,000 tokens/s: behind by", max(0.0, 100 - min(rates) / 20), 5, "%")


def long_text(bench: Bench, name: str, count: int) -> None:
    """A text as long as the model can read: everything above, again."""
    text = (STORY * (count // 16)).strip()  # 15 tokens each
    bench.open("?view=write&text=x")
    begun = time.perf_counter()
    bench.page.locator("#text").fill(text)
    bench.page.wait_for_selector(f".strip .column:nth-child({int(count * 0.85)})")
    bench.report.add(f"{name}: about {count} tokens are read", (time.perf_counter() - begun) * 1000, 5000)
    page_changes(bench, f"{name}, {count} tokens", text)
    hovers(bench, f"{name}, {count} tokens", text)


def memory(bench: Bench) -> None:
    """A hundred runs: a new text, its insides, more of it; what page and server hold after 20 and after 100."""
    bench.open("?view=attention&text=Once")
    devices = bench.page.context.new_cdp_session(bench.page)
    held = {}
    for run in range(1, 101):
        bench.page.locator("#text").fill(f"{STORY} The number is {run}")
        bench.page.wait_for_selector(".model:has-text('of 512')")
        bench.settle()
        if run % 10 == 0:
            for key in ("l", "w", "a"):
                bench.page.keyboard.press("Escape")
                bench.page.keyboard.press("g")
                bench.page.keyboard.press(key)
                bench.settle()
        if run in (20, 100):
            devices.send("HeapProfiler.collectGarbage")
            page = bench.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
            nodes = devices.send("Memory.getDOMCounters")["nodes"]
            held[run] = (page, resident(bench.process.pid), nodes)
    growth = [after - before for before, after in zip(held[20], held[100], strict=True)]
    bench.report.add("80 runs: growth of the page", growth[0], 5, "MB")
    bench.report.add(f"80 runs: growth of the server ({held[20][1]:.0f} MB before)", growth[1], 60, "MB")
    bench.report.add("80 runs: more nodes in the document", growth[2], 2000, "")


def resident(pid: int) -> float:
    """The memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def percentile(times: list[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share / 100))]


def gpt2_folder(home: Path) -> Path:
    """GPT-2 small with random weights and, where it is at hand, its own vocabulary."""
    from glassformer.hub.vocabulary import load_tokenizer
    from glassformer.models.gpt import GPT, PRESETS
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tokenizers import train_tokenizer

    source = Path(__file__).parents[2] / "shared" / "data" / "gpt2_bpe"
    tokenizer = None
    if source.is_dir():
        for name in ("encoder.json", "vocab.bpe"):
            (home / name).write_bytes(gzip.decompress((source / f"{name}.gz").read_bytes()))
        tokenizer = load_tokenizer(home)
    net = GPT(PRESETS["gpt2"]).initialize(0).eval()
    lm = LanguageModel(net, tokenizer or train_tokenizer([STORY * 50], 400), name="gpt2-random")
    lm.save(home / "gpt2-random")
    return home / "gpt2-random"


PARTS: dict[str, Callable[[Bench], None]] = {
    "start": start,
    "views": lambda bench: first_views(bench, "storyteller", 1000),
    "pages": lambda bench: page_changes(bench, "storyteller", SHORT),
    "hover": lambda bench: hovers(bench, "storyteller", SHORT),
    "stream": streaming,
    "memory": memory,
}
LARGE: dict[str, Callable[[Bench], None]] = {
    "gpt2": lambda bench: first_views(bench, "GPT-2 small", 3000),
    "long": lambda bench: long_text(bench, "GPT-2 small", 1000),
}


def main() -> None:
    """Start the studio and a browser, and measure."""
    from playwright.sync_api import sync_playwright

    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("--only", nargs="+", choices=[*PARTS, *LARGE], default=[*PARTS, *LARGE])
    reader.add_argument("--json", type=Path)
    given = reader.parse_args()
    report = Report()
    with sync_playwright() as play, tempfile.TemporaryDirectory() as home:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for parts in (PARTS, LARGE):
            wanted = [part for name, part in parts.items() if name in given.only]
            if not wanted:
                continue
            model = "storyteller" if parts is PARTS else str(gpt2_folder(Path(home)))
            with studio(browser, report, model) as bench:
                for part in wanted:
                    part(bench)
        browser.close()
    if given.json:
        given.json.write_text(json.dumps(asdict(report)["rows"], indent=1) + "\n")


if __name__ == "__main__":
    main()
