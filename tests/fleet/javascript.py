"""kaiju-fleet's page: its JavaScript gives what model.py gives, on random machines and traffic (Node), and the page
works from a file without any network (headless Chromium). Exits with 77, which CTest counts as skipped, where neither
Node nor Chromium is installed; the page also wants Chart.js (Debian: libjs-chart.js).

    javascript.py ROOT [SEED]      KAIJU_SCREENSHOTS=FOLDER keeps a picture of the page there"""

import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/server/web"))
sys.path.insert(0, str(ROOT / "examples/fleet"))  # the first: each has a page.py
import browser  # noqa: E402
import files  # noqa: E402
import model  # noqa: E402
import page  # noqa: E402

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
CASES = 60
NODE = """
const model = require(process.argv[1]);
const cases = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(cases.map(({machine, traffic, rate, count, least, p}) => ({
  fleet: model.fleet(machine, traffic), one: model.oneMachine(machine, traffic, rate),
  capacity: model.capacity(machine, traffic), at_least: model.atLeast(count, least, p)}))));
"""


def cases():
    dice = random.Random(SEED)
    for _ in range(CASES):
        machine, traffic = files.machine(), files.traffic()
        machine.update(
            slots=dice.randrange(20, 3000),
            service_factor=dice.uniform(0.5, 2),
            price_per_hour=dice.uniform(1, 9),
            step_tokens=dice.choice([512, 4096]),
            hours_to_repair=dice.choice([0, 5, 100]),
        )
        machine["kv"]["memory_bytes"] = dice.uniform(2e10, 3e11)
        traffic.update(
            messages_per_second=dice.uniform(1, 30000),
            hit_rate=dice.choice([0, 1, dice.random(), 1 - dice.random() / 50]),
            turns=dice.uniform(0, 200),
            reply_tokens=dice.randrange(5, 600),
            user_tokens=dice.randrange(1, 100),
            card_tokens=dice.choice([0, dice.randrange(1, 16000)]),
            balance=dice.uniform(1, 2),
            lost_share=dice.choice([0, dice.uniform(0, 0.5)]),
            p99_ms=dice.choice([100, 2500, 1e6]),
        )
        files.check_traffic(files.check_machine(machine, "case") and traffic, "case")
        count = dice.randrange(1, 400)
        yield {
            "machine": machine,
            "traffic": traffic,
            "rate": dice.uniform(0.1, 400),
            "count": count,
            "least": dice.randrange(0, count + 2),
            "p": dice.choice([1, dice.uniform(0.5, 0.9999)]),
        }


def same(here, there, where):
    """Numbers agree to 9 digits: exp and log may differ in the last one, and searches end where they do."""
    if isinstance(here, dict):
        assert here.keys() == there.keys(), (where, here.keys(), there.keys())
        for name in here:
            same(here[name], there[name], f"{where}.{name}")
    elif isinstance(here, (list, tuple)):
        assert len(here) == len(there), where
        for i, (one, other) in enumerate(zip(here, there)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(here, (int, float)):
        assert math.isclose(here, there, rel_tol=1e-9, abs_tol=1e-12), (where, here, there)
    else:
        assert here == there, (where, here, there)


def check_formulas():
    given = list(cases())
    answer = subprocess.run(
        ["node", "-e", NODE, str(ROOT / "examples/fleet/model.js")],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    limits = set()
    for i, (case, there) in enumerate(zip(given, json.loads(answer.stdout))):
        machine, traffic = case["machine"], case["traffic"]
        here = {
            "fleet": model.fleet(machine, traffic),
            "one": model.one_machine(machine, traffic, case["rate"]),
            "capacity": model.capacity(machine, traffic),
            "at_least": model.at_least(case["count"], case["least"], case["p"]),
        }
        same(here, there, f"case {i}")
        limits |= {here["one"]["limit"], here["capacity"][1]}
    assert len(limits) >= 5, limits  # the cases reach most of the formulas
    print(f"{CASES} cases, equal in Python and JavaScript; limits: {', '.join(sorted(limits))}")


def results(chromium):
    cells = chromium.texts("#results td")
    return dict(zip(cells[::2], cells[1::2]))


def check_page(folder):
    path = pathlib.Path(folder) / "fleet.html"
    traffic = files.traffic(name='</script><img src="http://127.0.0.1:9/x">')  # a name is text and nothing else
    page.write(path, files.machine(), traffic)
    chromium = browser.Browser()
    try:
        chromium.open(path.as_uri())
        chromium.wait("document.querySelectorAll('#results tr').length > 5")
        chromium.wait(
            "Object.keys(charts).length === 4 && Object.values(charts).every(c => c.data.datasets[0].data.length > 5)"
        )
        assert results(chromium)["machines"] == f"{model.fleet(files.machine(), traffic)['machines']:,}"
        assert "</script>" in chromium.text("#about")
        chromium.js(
            "(s => { s.value = 1000; s.dispatchEvent(new Event('input')); })(document.getElementById('hit_rate'))"
        )
        expected = model.fleet(files.machine(), {**traffic, "hit_rate": 0.999})
        shown = results(chromium)
        assert shown["machines"] == f"{expected['machines']:,}", (shown, expected)
        assert shown["a month"] == f"${expected['dollars_a_month']:,.0f}", (shown, expected)
        names = [name for role, name in chromium.accessible() if role == "slider"]
        assert len(names) >= 7 and all(names), names
        assert chromium.js("document.documentElement.scrollWidth <= innerWidth")  # nothing is cut off
        assert not chromium.complaints, chromium.complaints
        asked = [url for url in chromium.urls if not url.startswith(("file:", "about:"))]
        assert not asked, asked
        if os.environ.get("KAIJU_SCREENSHOTS"):
            chromium.size(1280, 900)
            chromium.wait("charts['by-session'].width < 450")
            chromium.screenshot(os.path.join(os.environ["KAIJU_SCREENSHOTS"], "fleet.png"))
    finally:
        chromium.close()
    print("the page shows what the formulas give, and asks nobody")


def main():
    print(f"seed {SEED}")
    done = 0
    if shutil.which("node"):
        check_formulas()
        done += 1
    if browser.chromium() and any(map(os.path.exists, files.CHART)):
        with tempfile.TemporaryDirectory() as folder:
            check_page(folder)
        done += 1
    return 0 if done else 77


sys.exit(main())
