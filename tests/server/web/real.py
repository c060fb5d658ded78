"""The web chat of kaiju-server in headless Chromium, served by the server itself with a real model. Exits with 77, which
CTest counts as skipped, without Chromium (Debian: apt install chromium).

    real.py KAIJU_SERVER MODEL [Class.test ...]      KAIJU_SCREENSHOTS=FOLDER keeps pictures of the page there"""

import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
import browser as browsers  # noqa: E402

if browsers.chromium() is None:
    print("skipped: Chromium is not installed")
    sys.exit(77)
from running import Running  # noqa: E402

SHOTS = os.environ.get("KAIJU_SCREENSHOTS")
NEWEST = ".turn.newest .reply > .text"
PIP = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        "name": "Pip",
        "description": "Pip is a robot who keeps a garden. Pip grows blue tomatoes. Pip is afraid of snails.",
        "first_mes": "Beep! Mind the seedlings.",
    },
}


class Real(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store, self.folder = folder.name + "/store", folder.name
        self.server = Running(store=self.store)
        self.page = browsers.Browser()
        self.addCleanup(self.page.close)
        self.url = f"http://127.0.0.1:{self.server.port}/"
        self.page.size(1200, 800)
        self.page.media()

    def tearDown(self):
        self.assertEqual(self.page.complaints, [])
        self.assertEqual([one for one in self.page.urls if not one.startswith((self.url, "blob:", "data:", "about:"))], [])
        self.assertEqual(self.server.stop(), 0)

    def shot(self, name):
        if SHOTS:
            time.sleep(0.3)  # transitions end
            os.makedirs(SHOTS, exist_ok=True)
            self.page.screenshot(os.path.join(SHOTS, f"real-{name}.png"))

    def home(self):
        self.page.open(self.url)
        self.page.wait("document.querySelectorAll('.card').length > 0", "characters are shown")

    def restart(self):
        port = self.server.port
        self.assertEqual(self.server.stop(), 0)
        self.server = Running(store=self.store, port=port)

    def import_pip(self):
        card = pathlib.Path(self.folder, "pip.json")
        card.write_text(json.dumps(PIP))
        self.page.files("#file", card)
        self.page.wait("[...document.querySelectorAll('.card h3')].some(one => one.innerText === 'Pip')")
        self.page.js("document.querySelector('dialog')?.close()")

    def settings(self, **values):
        self.page.click("#side-foot button")
        for name, value in values.items():
            self.page.fill(f"input[name={name}]", value)
        self.page.click("dialog [type=submit]")

    def say(self, text):
        self.page.js("document.getElementById('say').focus()")
        self.page.write_text(text)
        self.page.key("Enter")

    def answered(self, turns):
        self.page.wait(
            f"document.querySelectorAll('.turn:not(#run)').length === {turns} && !document.getElementById('run')",
            f"{turns} turns and no reply that runs",
        )

    def kept(self):
        """The chat in view, as the server has it."""
        return self.server.get("/chats/" + self.page.js("location.hash.split('/').pop()"))

    def test_a_card_is_imported_and_talked_to_and_the_chat_outlives_the_server(self):
        page = self.page
        self.home()
        self.assertGreaterEqual(page.js("document.querySelectorAll('.card').length"), 8)
        self.import_pip()
        self.shot("home-light")
        self.settings(temperature="0")
        page.click(page.label("Talk to Pip"))
        page.wait_text(NEWEST, "Beep! Mind the seedlings.")
        self.say("What do you grow?")
        self.answered(2)
        self.assertEqual(page.text(NEWEST), "I grow blue tomatoes.")
        self.say("What are you afraid of?")
        self.answered(3)
        self.assertEqual(page.text(NEWEST), "I'm afraid of snails.")
        self.assertRegex(page.text(".turn.newest .gauge"), r"^(9\d|8\d|7\d)% reused")
        self.shot("chat-light")

        self.settings(temperature="1", seed="7")
        page.click(page.label("New reply"))
        page.wait_text(".turn.newest .swipes", "2/2")
        self.answered(3)
        self.assertEqual(self.kept()["turns"][2]["replies"][1], page.text(NEWEST))
        page.click(page.label("Previous reply"))
        page.wait_text(".turn.newest .swipes", "1/2")
        page.wait_text(NEWEST, "I'm afraid of snails.")

        page.click(".turn .reply .row " + page.label("Edit the reply"), 1)
        page.fill(".edit textarea", "I grow plums.")
        page.key("Enter")
        page.wait("!document.querySelector('.edit')")
        self.assertEqual(self.kept()["turns"][1]["replies"], ["I grow plums."])

        page.click(page.label("Fork: a new chat that goes on from here"), 1)
        page.wait_text("#chat-head h1", "forked")
        self.answered(2)
        self.assertEqual(len(self.kept()["turns"]), 2)
        self.say("And for whom?")
        self.answered(3)
        before = page.texts(".turn .text")

        self.restart()
        self.home()
        page.click("#chats a", 0)
        self.answered(3)
        self.assertEqual(page.texts(".turn .text"), before)
        self.say("Who are you?")  # the history is computed again
        self.answered(4)
        self.assertEqual(len(self.kept()["turns"]), 4)

    def test_a_reply_is_stopped_and_a_server_that_is_gone_is_said(self):
        page = self.page
        self.home()
        self.settings(temperature="1", seed="3", max_tokens="4000")
        # A chat whose reply is as long as the context: the model's stop tokens end it else.
        chat = self.server.post("/chats", character="wren")[1]["id"]
        page.open(f"{self.url}#/chat/{chat}")
        page.wait("!document.getElementById('chat').hidden && document.querySelector('#chat-head h1')")
        page.js(  # the page's own request, without an end
            """(() => { const fetched = window.fetch; window.fetch = (url, options) => {
                if (String(url).endsWith("/say") && String(options.body).includes("everything"))
                    options = {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true, loop_guard: false})};
                return fetched(url, options); }; })()"""
        )
        self.say("Tell me everything.")
        page.wait("document.querySelector('#run .reply > .text')?.textContent.length > 20", "a reply has begun")
        self.shot("stream-light")
        page.click("#stop")
        self.answered(2)
        self.assertEqual(page.text(".turn.newest .why"), "Stopped.")
        turn = self.server.get(f"/chats/{chat}")["turns"][-1]
        self.assertEqual(turn["reason"], "cancelled")
        self.assertEqual(turn["replies"][0].split(), page.text(NEWEST).split())

        port = self.server.port
        self.assertEqual(self.server.stop(), 0)
        self.say("Are you there?")
        page.wait("document.querySelector('#run .failed p')")
        time.sleep(0.2)  # what else fails without a server would be said by now
        self.assertTrue(page.js("document.getElementById('problem').hidden"))
        self.shot("gone-light")
        self.server = Running(store=self.store, port=port)
        page.click("#run .failed button")
        self.answered(3)

    def test_looks(self):
        page = self.page
        self.home()
        self.import_pip()
        page.click(page.label("Talk to Pip"))
        page.wait_text(NEWEST, "Beep!")
        self.say("Tell me about your garden, and about the snails.")
        self.answered(2)
        fits = "document.scrollingElement.scrollWidth <= innerWidth"
        for device, width, height, phone in (("desktop", 1200, 800, False), ("phone", 390, 800, True)):
            page.size(width, height, phone)
            for scheme in ("light", "dark"):
                page.media(scheme)
                self.assertTrue(page.js(fits))
                self.shot(f"{device}-{scheme}-chat")
        self.home()
        for scheme in ("light", "dark"):
            page.media(scheme)
            self.assertTrue(page.js(fits))
            self.shot(f"phone-{scheme}-home")
        page.size(1200, 800)
        self.shot("desktop-dark-home")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
