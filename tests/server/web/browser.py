"""Browser: headless Chromium driven over its debugging pipe, with Python's standard library alone."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Home": (36, ""),
    "End": (35, ""),
    " ": (32, " "),
}
SHIFT = 8
# Within it Chromium does what it was asked, on a slow machine too. A test that passes never waits for so long.
PATIENCE_S = 20


def chromium():
    """The program, or None where it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One Chromium with one page. Keeps what the page asked the network for and what it complained about."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="kaiju-web-")
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        arguments = [
            chromium(),
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.folder}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            "--lang=en",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium's sandbox refuses root

        def ends():  # the pipe's ends are descriptors 3 and 4 of Chromium
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            arguments, close_fds=False, preexec_fn=ends, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self.answers, self.asked, self.changed = {}, 0, threading.Condition()
        self.urls, self.complaints, self.session = [], [], None
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def _listen(self):
        rest = b""
        while True:
            chunk = os.read(self.read, 1 << 20)
            if not chunk:
                return
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                with self.changed:
                    if "id" in message:
                        self.answers[message["id"]] = message
                    self._note(message.get("method"), message.get("params"))
                    self.changed.notify_all()

    def _note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Log.entryAdded" and params["entry"]["source"] in ("security", "violation", "javascript"):
            self.complaints.append(params["entry"]["text"])

    def call(self, method, **params):
        with self.changed:
            self.asked += 1
            number = self.asked
            message = {"id": number, "method": method, "params": params}
            if self.session:
                message["sessionId"] = self.session
            os.write(self.write, json.dumps(message).encode() + b"\0")
            if not self.changed.wait_for(lambda: number in self.answers, PATIENCE_S * 3):
                raise TimeoutError(f"Chromium did not answer {method}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(PATIENCE_S)
        except (OSError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what a test says ----
    def open(self, url):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def js(self, expression):
        """The value of an expression, awaited."""
        got = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in got:
            raise AssertionError(
                f"{expression}: {got['exceptionDetails'].get('exception', {}).get('description', got['exceptionDetails']['text'])}"
            )
        return got["result"].get("value")

    def wait(self, expression, what=None):
        """Waits until an expression is true and answers it."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                value = self.js(expression)
            except (AssertionError, RuntimeError) as failed:  # a page that is still loading
                value = None
                if time.monotonic() > end:
                    raise AssertionError(f"never true: {what or expression}: {failed}") from None
            if value not in (None, False, 0, ""):  # an element comes as {}
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never true: {what or expression}")
            time.sleep(0.02)

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def texts(self, selector):
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText)")

    def wait_text(self, selector, text):
        self.wait(
            f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})",
            f"{selector} says {text!r}",
        )

    def click(self, selector, nth=0):
        """A click of the mouse on the middle of a visible element, which nothing may cover."""
        place = self.wait(
            f"""(() => {{
            const node = [...document.querySelectorAll({json.dumps(selector)})].filter(one => one.checkVisibility()).at({nth});
            if (!node || node.disabled) return null;
            node.scrollIntoView({{block: "nearest", behavior: "instant"}});
            const box = node.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const top = document.elementFromPoint(x, y);
            return node.contains(top) || top?.closest("label")?.contains(node) ? [x, y] : null;
        }})()""",
            f"{selector} can be clicked",
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left" if kind != "mouseMoved" else "none",
                clickCount=1,
            )

    def label(self, label):
        """The selector of what bears a label."""
        return f"[aria-label={json.dumps(label)}]"

    def key(self, key, shift=False):
        code, text = KEYS[key]
        event = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": SHIFT if shift else 0,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def paste(self, text):
        """Pastes into what has the focus, from Chromium's clipboard."""
        self.js(f"""(held => {{
            const area = document.createElement("textarea");
            area.value = {json.dumps(text)};
            document.body.append(area);
            area.select();
            document.execCommand("copy");
            area.remove();
            held.focus();
        }})(document.activeElement)""")
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key="v",
            code="KeyV",
            windowsVirtualKeyCode=86,
            modifiers=2,
            commands=["paste"],
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key="v", code="KeyV", windowsVirtualKeyCode=86, modifiers=2)

    def write_text(self, text):
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        self.js(f"(node => {{ node.focus(); node.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.write_text(text)

    def files(self, selector, *paths):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        self.call(
            "DOM.setFileInputFiles",
            files=list(map(str, paths)),
            nodeId=self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"],
        )

    def size(self, width, height, phone=False):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, scheme="light", motion="no-preference"):
        self.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": scheme},
                {"name": "prefers-reduced-motion", "value": motion},
            ],
        )

    def accessible(self):
        """(role, name) of what assistive technology sees."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value"), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
