"""The web chat of kaiju-server in headless Chromium, against a mock of the server. Exits with 77, which CTest counts as
skipped, without Chromium (Debian: apt install chromium).

    page.py ROOT [Class.test ...]      KAIJU_SCREENSHOTS=FOLDER keeps pictures of the page there"""

import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import browser as browsers  # noqa: E402
from mock import Mock, png  # noqa: E402

PAGE = pathlib.Path(sys.argv[1]) / "examples/server/web/index.html" if len(sys.argv) > 1 else None
SHOTS = os.environ.get("KAIJU_SCREENSHOTS")
NEWEST, BOX = ".turn.newest .reply > .text", "#say"


def setUpModule():
    global mock, page
    mock, page = Mock(PAGE), browsers.Browser()


def tearDownModule():
    page.close()
    mock.close()


def until(true, what):
    """Waits for what shows at the mock and not on the page."""
    end = time.monotonic() + browsers.PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"never true: {what}")
        time.sleep(0.02)


def shot(name):
    if SHOTS:
        time.sleep(0.3)  # transitions end
        os.makedirs(SHOTS, exist_ok=True)
        page.screenshot(os.path.join(SHOTS, f"{name}.png"))


class OfPage(unittest.TestCase):
    """Each test begins with two characters, an empty browser and a desktop in light colours. No test may make the page
    complain, or ask another than the mock."""

    def setUp(self):
        page.call("Page.navigate", url="about:blank")  # the last test's page asks nothing more
        mock.reset()
        self.wren = mock.character(
            "Wren",
            "Wren Applegarth is a travelling hedge witch who drives a red wagon with a pony called Thursday.",
            "Oh! A customer who isn't a crow. Welcome to the wagon.",
            ["What is your pony called?", "What are you afraid of?"],
            png(30, 110, 90),
        )
        self.rook = mock.character(
            "Rook", "Rook keeps the toll bridge.", "Halt. Who goes there?", ["What is the toll?"]
        )
        page.size(1200, 800)
        page.media()
        page.open(mock.url)
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        page.js("localStorage.clear(), sessionStorage.clear(), 1")
        page.complaints.clear()
        page.urls.clear()

    def tearDown(self):
        for chat in list(mock.streams):
            mock.streams[chat].set()
        self.assertEqual(page.complaints, [])
        self.assertEqual(
            [url for url in page.urls if not url.startswith((mock.url, "blob:" + mock.url, "data:", "about:"))], []
        )

    def home(self):
        page.open(mock.url)
        page.wait(
            "!document.getElementById('home').hidden && document.querySelector('.card')", "the characters are in view"
        )

    def chat(self, *characters, title=None):
        """A new chat, in view."""
        made = mock.chat(list(characters) or [self.wren], title=title)
        self.enter(made)
        return made

    def enter(self, chat):
        page.open(f"{mock.url}#/chat/{chat}")
        page.wait(
            "!document.getElementById('chat').hidden && document.querySelector('#chat-head h1')", "the chat is shown"
        )

    def say(self, text):
        page.js("document.getElementById('say').focus()")
        page.write_text(text)
        page.key("Enter")

    def answered(self, turns):
        page.wait(
            f"document.querySelectorAll('.turn:not(#run)').length === {turns} && !document.getElementById('run')",
            f"{turns} turns and no reply that runs",
        )

    def held(self, chat):
        """Waits until a reply stands still in its middle."""
        page.wait("document.querySelector('#run .reply > .text')?.textContent.length > 3", "a reply has begun")


class Characters(OfPage):
    def test_each_has_its_picture_or_its_initial(self):
        self.home()
        page.wait("[...document.querySelectorAll('.card img')].some(one => one.complete && one.naturalWidth === 96)")
        self.assertEqual(
            page.js(
                "[...document.querySelectorAll('.card')].map(one => [one.querySelector('h3').innerText, !!one.querySelector('img')])"
            ),
            [["Wren", True], ["Rook", False]],
        )
        self.assertEqual(page.js("document.querySelectorAll('.card .face')[1].innerText"), "R")

    def test_a_click_begins_a_chat_in_the_name_of_the_user(self):
        self.home()
        page.click("#side-foot button")
        page.fill("input[name=user]", "Ann")
        page.click("dialog [type=submit]")
        page.click(page.label("Talk to Wren"))
        page.wait_text(NEWEST, "Welcome to the wagon.")
        self.assertEqual(mock.sent(r"/chats$")[-1], {"character": "wren", "user": "Ann"})
        page.wait_text("#chats .title", "Wren")  # the list comes after the chat
        self.assertEqual(page.texts("#chats .title"), ["Wren"])

    def test_one_is_created_by_the_form_edited_as_a_new_version_and_retired(self):
        self.home()
        page.click("#home-tools button")
        for n, text in enumerate(("Otter", "Otter likes\nclams.", "Hi!", "What do you eat?\nWhere do you sleep?")):
            page.js(f"document.querySelectorAll('dialog input, dialog textarea')[{n}].focus()")
            page.write_text(text)
        page.click("dialog [type=submit]")
        page.click(page.label("About Otter"))
        self.assertEqual(
            mock.sent(r"/characters$")[-1],
            {
                "name": "Otter",
                "description": "Otter likes\nclams.",
                "greeting": "Hi!",
                "suggestions": ["What do you eat?", "Where do you sleep?"],
            },
        )
        page.wait_text("dialog", "Otter likes\nclams.")
        page.click("dialog .ends button", 1)
        page.wait("document.querySelector('dialog h2').innerText === 'Edit Otter'")
        page.fill("dialog textarea", "Otter likes urchins.")
        page.click("dialog [type=submit]")
        page.wait("!document.querySelector('dialog')")
        page.click(page.label("About Otter"))
        page.wait_text("dialog", "urchins")
        self.assertEqual(page.texts("dialog option"), ["1", "2"])
        page.js(
            "(one => { one.value = '1'; one.dispatchEvent(new Event('change')); })(document.querySelector('dialog select'))"
        )
        page.wait_text("dialog", "clams")
        page.click("dialog .ends .bad")
        page.click("dialog .ends .bad")
        page.wait("document.querySelector('.card.retired h3')?.innerText.startsWith('Otter')")
        self.assertTrue(page.js("document.querySelector('.card.retired .talk').disabled"))
        page.click(page.label("About Otter"))
        page.wait_text("dialog", "urchins")
        self.assertEqual(page.texts("dialog .ends button"), ["Restore", "Close"])
        page.click("dialog .ends button")
        page.wait("!document.querySelector('.card.retired')")

    def test_one_of_another_key_can_be_neither_edited_nor_retired(self):
        self.home()
        mock.characters["wren"]["changeable"] = False
        page.click(page.label("About Wren"))
        page.wait("document.querySelector('dialog')")
        self.assertEqual(page.texts("dialog .ends button"), ["Close", "Talk"])

    def test_the_form_says_what_the_server_refuses_and_keeps_what_was_written(self):
        self.home()
        page.click("#home-tools button")
        page.js("document.querySelector('dialog input').focus()")
        page.write_text("Otter")
        page.js("document.querySelector('dialog textarea').focus()")
        page.write_text("Otter likes clams.")
        mock.fail("POST /characters", 422, "The description has 5,000 tokens; at most 3,072 fit.")
        page.click("dialog [type=submit]")
        page.wait_text("dialog .error", "The description has 5,000 tokens; at most 3,072 fit.")
        self.assertEqual(page.js("document.querySelector('dialog input').value"), "Otter")
        page.click("dialog [type=submit]")
        page.wait("document.querySelectorAll('.card').length === 3")

    def test_cards_are_imported_from_files_of_each_kind_with_the_servers_notes(self):
        self.home()
        v2 = {
            "spec": "chara_card_v2",
            "data": {
                "name": "Silas",
                "description": "Silas is a stationmaster.",
                "first_mes": "Evenin'.",
                "character_book": {"entries": []},
            },
        }
        with tempfile.TemporaryDirectory() as folder:
            json_file, picture = pathlib.Path(folder, "silas.json"), pathlib.Path(folder, "odette.png")
            json_file.write_text(json.dumps(v2))
            picture.write_bytes(
                png(90, 40, 80, json.dumps({"name": "Odette", "description": "Odette sings."}).encode())
            )
            text = pathlib.Path(folder, "isbel.card")
            text.write_text("name: Isbel\n\nIsbel tends a lighthouse.")
            page.files("#file", json_file, picture, text)
            page.wait("document.querySelectorAll('.card').length === 5 && document.querySelector('dialog')")
            self.assertEqual(
                [body for method, path, body, _ in mock.requests if (method, path) == ("POST", "/characters")],
                [v2, picture.read_bytes(), text.read_bytes()],
            )
        page.wait_text("dialog", "Silas")
        page.wait_text("dialog", "Odette")
        page.wait_text("dialog li", "2 entries of the character book were placed behind the description.")

    def test_a_dropped_file_is_imported_and_a_refused_one_can_be_tried_again(self):
        self.home()
        page.js("""(() => {
            const data = new DataTransfer();
            data.items.add(new File(["no card"], "x.json"));
            document.body.dispatchEvent(new DragEvent("dragover", {dataTransfer: data, bubbles: true, cancelable: true}));
            if (document.getElementById("drop").hidden) throw new Error("the page does not show where to drop");
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        })()""")
        page.wait_text("dialog .error", "x.json: The body is no JSON object: send a card, or a PNG with a card inside.")
        page.click("dialog .ends button")
        until(lambda: len(mock.sent("^/characters$")) == 2, "a second try")
        page.wait("document.querySelectorAll('dialog').length === 1 && document.querySelector('dialog .error')")
        self.assertEqual(page.js("document.getElementById('drop').hidden"), True)


class Replies(OfPage):
    def test_a_suggested_question_is_asked_by_a_click(self):
        chat = self.chat()
        self.assertEqual(page.texts("#asks button"), ["What is your pony called?", "What are you afraid of?"])
        page.click("#asks button")
        self.answered(2)
        self.assertEqual(mock.sent("/say")[-1], {"text": "What is your pony called?", "stream": True})
        self.assertEqual(page.text(NEWEST), mock.chats[chat]["turns"][1]["replies"][0].replace("*", ""))
        self.assertFalse(page.js("document.querySelector('#asks').checkVisibility()"))

    def test_the_text_shows_while_it_is_written_and_the_button_stops_it(self):
        chat = self.chat()
        self.say("Tell me. [hold]")
        self.held(chat)
        self.assertEqual(page.text("#run .user .text"), "Tell me. [hold]")
        self.assertEqual(page.text("#run .reply > .text"), "*looks up from")
        self.assertEqual(page.js("document.getElementById('turns').ariaBusy"), "true")
        shot("desktop-light-streaming")
        page.click("#stop")
        self.answered(2)
        self.assertEqual(mock.chats[chat]["turns"][1]["replies"], ["*looks up from"])
        self.assertEqual(page.text(".turn.newest .why"), "Stopped.")

    def test_escape_stops_and_the_box_has_the_focus_after(self):
        chat = self.chat()
        self.say("[hold]")
        self.held(chat)
        page.key("Escape")
        self.answered(2)
        self.assertEqual(len(mock.sent("/stop")), 1)
        self.assertEqual(page.js("document.activeElement.id"), "say")

    def test_why_a_reply_ended_early_is_said(self):
        self.chat()
        self.say("[length]")
        self.answered(2)
        self.assertEqual(page.text(".turn.newest .why"), "Cut at the most tokens a reply may have.")

    def test_arrows_go_through_the_replies_and_beyond_the_last_a_new_one_is_written(self):
        chat = self.chat()
        self.say("And your pony?")
        self.answered(2)
        page.click(page.label("New reply"))
        page.wait_text(".turn.newest .swipes", "2/2")
        page.wait_text(NEWEST, "My pony? Thursday.")
        page.js("document.getElementById('say').focus()")
        page.key("ArrowRight")
        page.wait_text(".turn.newest .swipes", "3/3")
        page.key("ArrowLeft")
        page.wait_text(".turn.newest .swipes", "2/3")
        page.click(page.label("Previous reply"))
        page.wait_text(".turn.newest .swipes", "1/3")
        self.assertTrue(page.js(f"document.querySelector({json.dumps(page.label('Previous reply'))}).disabled"))
        page.key("ArrowRight")  # the focus is still at the reply, not in the box: nothing may move
        page.click(page.label("Next reply"))
        page.wait_text(".turn.newest .swipes", "2/3")
        self.assertEqual(
            (mock.sent("/choose"), mock.chats[chat]["turns"][1]["chosen"]),
            ([{"reply": 1}, {"reply": 0}, {"reply": 1}], 1),
        )
        self.assertEqual(
            page.js("document.activeElement.ariaLabel"), "Next reply"
        )  # the turn was drawn again, the focus stays

    def test_arrows_move_the_caret_when_the_box_has_text(self):
        self.chat()
        self.say("One")
        self.answered(2)
        page.write_text("two")
        page.key("ArrowLeft")
        page.write_text("!")
        self.assertEqual(page.js("document.getElementById('say').value"), "tw!o")
        self.assertEqual(mock.sent("/(swipe|choose)"), [])

    def test_gauges_say_how_much_was_reused_and_how_much_context_is_used(self):
        chat = self.chat()
        self.say("Hello")
        self.answered(2)
        turn = mock.chats[chat]["turns"][1]
        gauge = page.js(
            "(one => [one.role, one.getAttribute('aria-valuenow'), one.innerText, one.title])(document.querySelector('.turn.newest .gauge'))"
        )
        part = 100 * turn["cached_tokens"] / turn["prompt_tokens"]
        self.assertEqual(gauge[:3], ["meter", str(round(part)), f"{int(part)}% reused"])
        self.assertIn(f"{turn['cached_tokens']} of {turn['prompt_tokens']} prompt tokens were reused", gauge[3])
        self.assertEqual(
            page.js(
                "(one => { const bar = getComputedStyle(one, '::after'); return Math.round(100 * parseFloat(bar.width) / one.offsetWidth); })(document.querySelector('.turn.newest .gauge i'))"
            ),
            round(part),
        )
        self.assertRegex(page.text("#context"), r"^\d+ / 4,096$")

    def test_emoji_that_come_in_pieces_of_bytes_and_a_long_paste_stay_whole(self):
        chat = self.chat()
        emoji = "👩‍🚀👍🏽🏳️‍🌈 é ünï 漢字 🐎"
        self.say(f"[hold][reply: {emoji}]")
        page.wait("document.querySelector('#run .reply > .text')?.textContent.includes('ünï')")
        self.assertEqual(page.text("#run .reply > .text"), "👩‍🚀👍🏽🏳️‍🌈 é ünï")  # as it was streamed
        mock.release(chat)
        self.answered(2)
        self.assertEqual(page.text(NEWEST), emoji)
        long = "Зимний вечер 👩‍🚀\nline " * 4000
        page.paste(long + "end")
        self.assertEqual(
            page.js("document.getElementById('say').value.length"), len((long + "end").encode("utf-16-le")) // 2
        )
        page.key("Enter")
        self.answered(3)
        self.assertEqual(mock.chats[chat]["turns"][2]["user"], long + "end")

    def test_a_reply_goes_on_while_another_chat_is_looked_at_and_drafts_stay_with_their_chats(self):
        other = mock.chat([self.rook], title="The bridge")
        chat = self.chat(title="The wagon")
        self.say("[hold]")
        self.held(chat)
        page.write_text("a draft")
        page.click(f"#chats a[href='#/chat/{other}']")
        page.wait_text("#chat-head h1", "The bridge")
        self.assertEqual(
            (page.js("document.getElementById('say').value"), page.js("document.getElementById('run')")), ("", None)
        )
        page.click(f"#chats a[href='#/chat/{chat}']")
        page.wait_text("#run .reply > .text", "looks up from")
        self.assertEqual(page.js("document.getElementById('say').value"), "a draft")
        page.click(f"#chats a[href='#/chat/{other}']")
        page.wait_text("#chat-head h1", "The bridge")
        mock.release(chat)
        page.wait("document.querySelector('#chats a .when').innerText.includes('2 turns')")
        self.assertEqual(page.texts(".turn .reply > .text"), ["Halt. Who goes there?"])
        page.click(f"#chats a[href='#/chat/{chat}']")
        page.wait_text(NEWEST, "Oh, a wren!")

    def test_a_reply_for_another_window_is_waited_for(self):
        chat = mock.chat([self.wren])
        mock.chats[chat]["busy"] = True
        self.enter(chat)
        page.wait("!document.getElementById('elsewhere').hidden")
        self.assertFalse(page.js("document.getElementById('send').checkVisibility()"))
        mock.chats[chat]["turns"].append(
            {
                "user": "Hi",
                "speaker": self.wren,
                "replies": ["Hello there."],
                "chosen": 0,
                "cached_tokens": 1,
                "prompt_tokens": 2,
            }
        )
        mock.chats[chat]["busy"] = False
        page.wait_text(NEWEST, "Hello there.")
        page.wait("document.getElementById('elsewhere').hidden && document.getElementById('send').checkVisibility()")


class Turns(OfPage):
    def three(self):
        chat = self.chat()
        for n, text in enumerate(("First", "Second", "Third")):
            self.say(text)
            self.answered(n + 2)
        return chat

    def test_a_reply_is_edited_in_place(self):
        chat = self.three()
        page.click(".turn .reply .row " + page.label("Edit the reply"), 1)
        page.fill(".edit textarea", "Another\ntext 🐎")
        page.key("Enter")
        page.wait("!document.querySelector('.edit')")
        self.assertEqual(mock.sent("/edit"), [{"turn": 1, "part": "reply", "text": "Another\ntext 🐎"}])
        self.assertEqual(page.texts(".turn .reply > .text")[1], "Another\ntext 🐎")
        self.assertEqual(len(mock.chats[chat]["turns"]), 4)

    def test_an_edited_user_text_drops_later_turns_after_a_question_and_is_answered(self):
        chat = self.three()
        page.click(page.label("Edit your message"), 1)
        page.fill(".edit textarea", "Second thoughts")
        page.key("Enter")
        page.wait_text("dialog", "The turn after it is dropped.")
        page.click("dialog .bad")
        self.answered(3)
        page.wait_text(".turn.newest .swipes", "2/2")
        self.assertEqual([turn["user"] for turn in mock.chats[chat]["turns"]], [None, "First", "Second thoughts"])
        self.assertEqual(page.text(".turn.newest .user .text"), "Second thoughts")

    def test_escape_leaves_an_edit_and_changes_nothing(self):
        self.three()
        page.click(page.label("Edit your message"), 2)
        page.fill(".edit textarea", "Never")
        page.key("Escape")
        page.wait("!document.querySelector('.edit')")
        self.assertEqual((page.text(".turn.newest .user .text"), mock.sent("/(edit|stop)")), ("Third", []))

    def test_undo_takes_the_newest_turn_and_gives_its_text_back(self):
        chat = self.three()
        page.click(page.label("Undo the newest turn"))
        self.answered(3)
        self.assertEqual(
            (page.js("document.getElementById('say').value"), len(mock.chats[chat]["turns"])), ("Third", 3)
        )
        self.assertEqual(page.js("document.querySelectorAll('.turn.newest').length"), 1)

    def test_a_fork_is_a_new_chat_in_view_that_has_the_turns_so_far(self):
        chat = self.three()
        page.click(page.label("Fork: a new chat that goes on from here"), 2)
        page.wait_text("#chat-head h1", "Wren, forked")
        self.answered(3)
        self.assertEqual((mock.sent("/fork"), len(mock.chats[chat]["turns"]), len(mock.chats)), ([{"turns": 3}], 4, 2))

    def test_a_chat_is_deleted_after_a_question(self):
        chat = self.three()
        page.click(page.label("Delete this chat"))
        page.click("dialog .ends button")
        page.wait("!document.querySelector('dialog')")
        self.assertIn(chat, mock.chats)
        page.click(page.label("Delete this chat"))
        page.click("dialog .bad")
        page.wait("location.hash === '#/' && document.querySelectorAll('#chats a').length === 0")
        self.assertNotIn(chat, mock.chats)

    def test_a_reply_is_reported_with_its_kind_and_a_comment(self):
        chat = self.three()
        page.click(page.label("New reply"))
        page.wait_text(".turn.newest .swipes", "2/2")
        page.click(page.label("Report the reply"), -1)
        page.click("dialog input[value='wrong refusal']")
        page.js("document.querySelector('dialog textarea').focus()")
        page.write_text("It only asked for jam.")
        page.click("dialog [type=submit]")
        page.wait("!document.querySelector('dialog')")
        self.assertEqual(
            mock.reports,
            [{"chat": chat, "turn": 3, "reply": 1, "kind": "wrong refusal", "comment": "It only asked for jam."}],
        )

    def test_several_characters_speak_in_turn_or_as_the_user_picks(self):
        self.home()
        page.click("#home-tools button", 2)
        page.click(page.label("Pick Wren"))
        page.click(page.label("Pick Rook"))
        shot("desktop-light-picking")
        page.click("#together button")
        page.wait("!document.getElementById('speakers').hidden")
        self.assertEqual(mock.sent(r"/chats$")[-1], {"characters": ["wren", "rook"]})
        chosen = "document.querySelector('#speakers :checked').value"
        self.assertEqual(page.js(chosen), "rook")  # Wren greeted
        self.say("Who are you?")
        self.answered(2)
        self.assertEqual(page.js(chosen), "wren")
        page.click("#speakers input[value=rook]")
        page.wait(f"!!document.querySelector({json.dumps(page.label('Let Rook speak'))})")
        page.click("#send")
        self.answered(3)
        self.assertEqual(
            [(body["text"], body["speaker"]) for body in mock.sent("/say")], [("Who are you?", "rook"), ("", "rook")]
        )
        self.assertEqual(page.texts(".reply-head b"), ["Wren", "Rook", "Rook"])
        self.assertEqual(page.js("document.querySelectorAll('.turn.newest .user').length"), 0)
        shot("desktop-light-several")


class Failures(OfPage):
    def test_a_refused_message_shows_the_servers_words_and_is_sent_again(self):
        self.chat()
        mock.fail("/say", 429, "64 requests wait already. Try again in 2 seconds.")
        self.say("Hello there")
        page.wait_text("#run .failed p", "64 requests wait already. Try again in 2 seconds.")
        shot("desktop-light-failed")
        page.click("#run .failed button")
        self.answered(2)
        self.assertEqual([body["text"] for body in mock.sent("/say")], ["Hello there"] * 2)

    def test_a_discarded_message_goes_back_into_the_box(self):
        self.chat()
        mock.fail("/say", 400, "The message is too long.")
        self.say("Hello there")
        page.click("#run .failed button", 1)
        page.wait("!document.getElementById('run')")
        self.assertEqual(page.js("document.getElementById('say').value"), "Hello there")

    def test_an_error_within_a_stream_and_a_lost_connection_are_said(self):
        self.chat()
        for text, words in (
            ("[error]", "The engine ran out of KV blocks."),
            ("[cut]", "The connection ended before the reply did."),
        ):
            with self.subTest(text):
                self.say(text)
                page.wait_text("#run .failed p", words)
                page.click("#run .failed button", 1)
                page.wait("!document.getElementById('run')")
                page.js("document.getElementById('say').value = ''")

    def test_other_calls_show_the_servers_words_and_a_retry_that_works(self):
        chat = self.chat()
        self.say("Hi")
        self.answered(2)
        for path, what in (
            ("/undo", page.label("Undo the newest turn")),
            ("POST /chats/c_0000000000000001/fork", page.label("Fork: a new chat that goes on from here")),
        ):
            with self.subTest(path):
                mock.fail(path, 500, "The store is locked.")
                page.click(what)
                page.wait_text("#problem", "The store is locked.")
                page.click("#problem button")
                page.wait("document.getElementById('problem').hidden")
        page.wait_text("#chat-head h1", "Wren, forked")
        self.assertEqual(len(mock.chats[chat]["turns"]), 1)

    def test_a_server_that_is_not_ready_at_first_is_tried_again(self):
        mock.fail("GET /(characters|chats)", 503, "The engine is starting.", times=2)
        page.open(mock.url)
        page.wait_text("#problem", "The engine is starting.")
        page.click("#problem button")
        page.wait("document.querySelectorAll('.card').length === 2")

    def test_an_address_of_no_chat_says_so_beside_the_characters(self):
        page.open(f"{mock.url}#/chat/c_ffff")
        page.wait_text("#problem", "There is no chat c_ffff.")
        page.wait("document.querySelector('.card').checkVisibility()")

    def test_a_server_with_keys_is_asked_with_the_key_that_the_user_gives(self):
        mock.key = "s3cret"
        page.open(mock.url)
        page.wait_text("dialog", "This server wants an API key.")
        shot("desktop-light-key")
        for key in ("wrong", "s3cret"):
            page.js("document.querySelector('dialog input').focus()")
            page.write_text(key)
            page.key("Enter")
            if key == "wrong":
                page.wait_text("dialog", "This API key is unknown.")
        page.wait(
            "[...document.querySelectorAll('.card img')].some(one => one.src.startsWith('blob:') && one.naturalWidth === 96)"
        )
        self.assertEqual(
            page.js("[sessionStorage['kaiju.key'], Object.values(localStorage).join().includes('s3cret')]"),
            ["s3cret", False],
        )
        page.click(page.label("Talk to Rook"))
        page.wait_text(NEWEST, "Halt.")
        self.say("Hello")
        self.answered(2)

    def test_no_key_given_is_an_error_that_can_be_tried_again(self):
        mock.key = "s3cret"
        late = mock.hold("GET /chats")
        page.open(mock.url)
        page.click("dialog .ends button")
        late.set()  # it asks no second time for what was asked before
        page.wait_text("#problem", "This server wants an API key.")
        page.js("new Promise(done => setTimeout(done, 200))")
        page.click("#problem button")
        page.wait("document.querySelector('dialog input')")

    def test_texts_of_the_server_never_become_html(self):
        bad = '<img src=x onerror="window.broken=1"><script>window.broken=1</script><b>bold</b>'
        evil = mock.character(bad, bad, bad, [bad], notes=[bad])
        self.home()
        page.click(page.label(f"About {bad}"))
        page.wait_text("dialog", bad)
        page.js("document.querySelector('dialog').close()")
        self.chat(evil, title=bad)
        self.say(f"[reply: {bad}]")
        self.answered(2)
        mock.fail("/undo", 500, bad)
        page.click(page.label("Undo the newest turn"))
        page.wait_text("#problem", bad)
        self.assertEqual(page.text(NEWEST), bad)
        self.assertEqual(
            page.js(
                "[window.broken ?? null, document.querySelectorAll('#main script, #main img[src=x], .text b').length]"
            ),
            [None, 0],
        )


class Settings(OfPage):
    def test_sampling_settings_are_sent_and_outlive_the_page(self):
        chat = self.chat()
        page.click("#side-foot button")
        for name, value in (("temperature", "0.7"), ("max_tokens", "80"), ("seed", "12345678901")):
            page.fill(f"input[name={name}]", value)
        shot("desktop-light-settings")
        page.click("dialog [type=submit]")
        self.enter(chat)
        self.say("Hello")
        self.answered(2)
        page.click(page.label("New reply"))
        page.wait_text(".turn.newest .swipes", "2/2")
        fields = {"stream": True, "temperature": 0.7, "max_tokens": 80, "seed": 12345678901}
        self.assertEqual((mock.sent("/say"), mock.sent("/swipe")), ([{"text": "Hello", **fields}], [fields]))

    def test_colours_follow_the_system_until_the_switch_says_otherwise(self):
        self.home()
        light = page.js("getComputedStyle(document.body).backgroundColor")
        page.media("dark")
        dark = page.js("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(light, dark)
        page.click("#theme")
        self.assertEqual(page.js("getComputedStyle(document.body).backgroundColor"), light)
        page.media("light")
        page.click("#theme")
        self.assertEqual(page.js("getComputedStyle(document.body).backgroundColor"), dark)
        self.home()
        self.assertEqual(page.js("getComputedStyle(document.body).backgroundColor"), dark)
        page.click("#theme")
        self.assertEqual(page.js("getComputedStyle(document.body).backgroundColor"), light)

    def test_every_text_has_the_contrast_that_WCAG_AA_asks_for(self):
        self.chat(self.wren, self.rook)
        self.say("Hello")
        self.answered(2)
        mock.fail("/undo", 500, "The store is locked.")
        page.click(page.label("Undo the newest turn"))
        page.wait_text("#problem", "locked")
        measure = """(() => {
            const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
            const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
            const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
            const bad = [];
            let seen = 0;
            for (const node of document.querySelectorAll("body *")) {
                if (![...node.childNodes].some(one => one.nodeType === 3 && one.data.trim()) || !node.checkVisibility() || node.disabled || node.closest(".unseen, .face")) continue;
                let under = node;
                while (under && rgb(getComputedStyle(under).backgroundColor)[3] < 255) under = under.parentElement;
                const [a, b] = [light(rgb(getComputedStyle(node).color)), light(rgb(getComputedStyle(under ?? document.body).backgroundColor))].sort((x, y) => y - x);
                seen++;
                if ((a + .05) / (b + .05) < 4.5) bad.push(`${node.className || node.id || node.tagName} "${node.innerText.slice(0, 20)}" ${((a + .05) / (b + .05)).toFixed(2)}`);
            }
            return [seen, bad];
        })()"""
        for view in ("chat", "home"):
            if view == "home":
                self.home()
            for scheme in ("light", "dark"):
                page.media(scheme, "reduce")  # no colour is on its way
                with self.subTest(view=view, scheme=scheme):
                    seen, bad = page.js(measure)
                    self.assertGreater(seen, 8)
                    self.assertEqual(bad, [])

    def test_nothing_moves_for_those_who_ask_for_it(self):
        chat = self.chat()
        self.say("[hold]")
        self.held(chat)
        moving = "document.getAnimations({subtree: true}).filter(one => one.playState === 'running').length"
        page.wait(f"{moving} > 0")
        page.media("light", "reduce")
        page.wait(f"{moving} === 0")


class Reading(OfPage):
    """Keyboard, screen readers, phones."""

    def test_shift_and_enter_start_a_line(self):
        chat = self.chat()
        page.js("document.getElementById('say').focus()")
        page.write_text("one")
        height = page.js("document.getElementById('say').offsetHeight")
        page.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key="Enter",
            code="Enter",
            windowsVirtualKeyCode=13,
            modifiers=browsers.SHIFT,
            text="\r",
        )
        page.write_text("two")
        self.assertEqual(page.js("document.getElementById('say').value"), "one\ntwo")
        page.wait(f"document.getElementById('say').offsetHeight > {height}")
        page.key("Enter")
        self.answered(2)
        self.assertEqual(mock.chats[chat]["turns"][1]["user"], "one\ntwo")
        page.wait(f"document.getElementById('say').offsetHeight === {height}")

    def test_enter_that_ends_a_composition_sends_nothing(self):
        self.chat()
        page.js("document.getElementById('say').focus()")
        page.write_text("漢")
        page.js(
            "document.getElementById('say').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))"
        )
        self.assertEqual(page.js("document.getElementById('say').value"), "漢")
        page.js(
            "document.getElementById('say').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true}))"
        )
        self.answered(2)
        self.assertEqual([body["text"] for body in mock.sent("/say")], ["漢"])

    def test_tab_reaches_everything_in_order_and_shows_where_it_is(self):
        chat = self.chat()
        for n in range(3):
            self.say("Hello")
            self.answered(n + 2)
        page.write_text("x")  # Send is enabled so
        page.js(
            "document.activeElement.blur(), window.getSelection().removeAllRanges(), document.body.tabIndex = -1, document.body.focus(), document.body.removeAttribute('tabindex')"
        )
        names, hidden = [], []
        for _ in range(40):
            page.key("Tab")
            name, shows, visible = page.js(
                """(node => [node.ariaLabel || node.innerText.trim() || node.id, getComputedStyle(node).outlineStyle !== "none" || node.id === "say",
                node === document.body || node.checkVisibility({opacityProperty: false})])(document.activeElement)"""
            )
            if not shows or not visible:
                hidden.append(name)
            names.append(name.split("\n")[0])
            if name == "Send":
                break
        self.assertEqual(hidden, [])
        self.assertEqual(
            names[:4], ["Skip to the conversation", "kaiju", "New chat", "Find a chat by its title or character"]
        )
        order = [
            "Settings",
            "Undo the newest turn",
            "Delete this chat",
            "Turn 4",
            "Edit your message",
            "New reply",
            "Edit the reply",
            "Fork: a new chat that goes on from here",
            "Report the reply",
            "Your message",
            "Send",
        ]
        self.assertEqual([name for name in names if name in order], order)
        page.js("document.querySelector('.turn.newest').focus()")
        page.key("ArrowUp")
        page.key("ArrowUp")
        self.assertEqual(page.js("document.activeElement.ariaLabel"), "Turn 2")
        page.key("Tab")
        page.key("Enter")
        page.wait("document.querySelector('.edit textarea') === document.activeElement")
        self.assertEqual(page.js("document.activeElement.value"), mock.chats[chat]["turns"][1]["user"])

    def test_the_skip_link_leads_to_the_box(self):
        self.chat()
        page.js("document.getElementById('skip').focus()")
        self.assertGreaterEqual(page.js("document.getElementById('skip').getBoundingClientRect().top"), 0)
        page.key("Enter")
        self.assertEqual(page.js("[document.activeElement.id, location.hash.slice(0, 7)]"), ["say", "#/chat/"])

    def test_a_reply_is_spoken_by_whole_sentences(self):
        chat = self.chat()
        spoken = "[...document.querySelectorAll('#live p')].map(one => one.textContent)"
        self.say("[hold][reply: One sentence. Two sentences! Three]")
        page.wait("document.querySelector('#run .reply > .text')?.textContent === 'One sentence. Two'")
        page.wait(f"{spoken}.length > 0")
        self.assertEqual(page.js(spoken), ["Wren: One sentence."])
        mock.release(chat)
        self.answered(2)
        self.assertEqual(" ".join(page.js(spoken)), "Wren: One sentence. Two sentences! Three")
        self.assertEqual(
            page.js("[document.getElementById('live').ariaLive, document.getElementById('live').role]"),
            ["polite", "log"],
        )

    def test_everything_that_can_be_used_has_a_name(self):
        wants = {
            "button",
            "link",
            "textbox",
            "searchbox",
            "radio",
            "checkbox",
            "combobox",
            "meter",
            "dialog",
            "spinbutton",
            "article",
            "main",
            "navigation",
            "image",
        }

        def check(view, *needed):
            end = time.monotonic() + browsers.PATIENCE_S  # the browser makes its tree a little later than the page
            while not set(needed) <= set(nodes := page.accessible()) and time.monotonic() < end:
                time.sleep(0.1)
            with self.subTest(view):
                self.assertEqual([node for node in nodes if node[0] in wants - {"main"} and not node[1].strip()], [])
                for name in needed:
                    self.assertIn(name, nodes)

        self.home()
        check(
            "home",
            ("button", "Talk to Wren"),
            ("button", "About Rook"),
            ("navigation", "Chats"),
            ("heading", "Who will you talk to?"),
        )
        page.click("#home-tools button")
        check("form", ("dialog", "New character"), ("textbox", "Name"))
        page.key("Escape")
        page.click("#side-foot button")
        check("settings", ("dialog", "Settings"))
        page.key("Escape")
        self.chat(self.wren, self.rook)
        self.say("Hello")
        self.answered(2)
        check(
            "chat",
            ("textbox", "Your message"),
            ("radio", "Wren"),
            ("article", "Turn 2"),
            ("button", "Let Wren speak"),
            ("feed", "Conversation"),
        )
        page.click(page.label("Report the reply"), -1)
        page.wait("document.querySelector('dialog')")
        check("report", ("dialog", "Report this reply"), ("radiogroup", "What is wrong"))

    def test_a_phone_shows_one_thing_at_a_time_and_nothing_is_cut_off(self):
        page.size(360, 740, phone=True)
        wide = mock.character(
            "Hieronymus-Bartholomaeus-Maximilian-von-Hohenlohe",
            greeting="x" * 300,
            suggestions=["Why " + "so " * 30 + "long?"],
        )
        self.home()
        fits = "document.scrollingElement.scrollWidth <= innerWidth && [...document.querySelectorAll('#main *')].filter(one => one.checkVisibility() && !one.closest('.unseen, #speakers')).every(one => { const box = one.getBoundingClientRect(); return box.right <= innerWidth + 1 && box.left >= -1; })"
        self.assertTrue(page.js(fits))
        self.assertFalse(page.js("document.getElementById('side').checkVisibility({visibilityProperty: true})"))
        for characters in ([wide], [self.wren, self.rook, wide]):
            self.chat(*characters)
            self.say("A" * 200 + " " + "words " * 20)
            self.answered(2)
            self.assertTrue(page.js(fits), characters)
        small = "[...document.querySelectorAll('#main button')].filter(one => one.checkVisibility() && (one.offsetWidth < 38 || one.offsetHeight < 38)).map(one => one.ariaLabel || one.innerText)"
        self.assertEqual(page.js(small), [])
        page.click(page.label("Show the chats"))
        page.wait("document.getElementById('side').getBoundingClientRect().left === 0")
        self.assertTrue(
            page.js(
                "document.getElementById('main').inert && document.getElementById('side').contains(document.activeElement)"
            )
        )
        page.key("Escape")
        page.wait(
            "!document.getElementById('side').checkVisibility({visibilityProperty: true}) && !document.getElementById('main').inert"
        )
        self.assertEqual(page.js("document.activeElement.ariaLabel"), "Show the chats")
        page.click(page.label("Show the chats"))
        page.click("#chats a", 1)
        page.wait("!document.getElementById('main').inert && location.hash.includes('c_')")

    def test_two_hundred_chats_and_a_chat_of_five_hundred_turns(self):
        for n in range(200):
            mock.chat([self.wren if n % 2 else self.rook], title=f"Chat {n}")
        long = mock.chat([self.wren], title="Long")
        mock.chats[long]["turns"] += [
            {
                "user": f"Question {n}?",
                "speaker": self.wren,
                "replies": [f"Answer {n}. " + "It rains. " * 20] * (1 + n % 3),
                "chosen": n % (1 + n % 3),
                "cached_tokens": 90,
                "prompt_tokens": 100,
            }
            for n in range(499)
        ]
        self.home()
        begin = time.monotonic()
        page.js(f"location.hash = '#/chat/{long}'")
        page.wait("document.querySelectorAll('.turn').length === 500")
        opened = time.monotonic() - begin
        self.assertEqual(page.js("document.querySelectorAll('#chats a').length"), 201)
        self.assertLess(
            page.js("(one => one.scrollHeight - one.scrollTop - one.clientHeight)(document.getElementById('turns'))"), 2
        )
        page.js(
            "document.querySelectorAll('.turn').forEach(one => { one.seen = true; }), window.frames_ = [], (function frame(last) { requestAnimationFrame(now => { frames_.push(now - last); frame(now); }); })(performance.now())"
        )
        begin = time.monotonic()
        self.say("[reply: " + "One word after another. " * 100 + "]")
        self.answered(501)
        said = time.monotonic() - begin
        # What was there stays: the turn that is no more the newest and the new one are all that is drawn.
        self.assertEqual(page.js("[...document.querySelectorAll('.turn')].filter(one => !one.seen).length"), 2)
        frame = page.js("Math.max(...frames_.slice(1))")
        print(
            f"500 turns: opened in {opened:.2f} s; a reply of 400 pieces in {said:.2f} s, longest frame {frame:.0f} ms",
            file=sys.stderr,
        )
        self.assertLess(opened, 10)
        page.fill("#filter", "chat 17")
        page.wait("document.querySelectorAll('#chats a').length === 11")
        page.click(page.label("Undo the newest turn"))
        self.answered(500)
        self.assertEqual(
            page.js('document.querySelectorAll(\'.turn [tabindex="0"], .turn[tabindex="0"]\').length <= 8'), True
        )


@unittest.skipUnless(SHOTS, "no KAIJU_SCREENSHOTS")
class Views(OfPage):
    """Pictures to look at, with the characters that kaiju brings."""

    def setUp(self):
        super().setUp()
        mock.reset()
        for n, card in enumerate(sorted((PAGE.parents[3] / "examples/chat/characters").glob("*.card"))):
            head, description = card.read_text().split("\n\n", 1)
            fields = re.findall(r"^(\w+): (.*)$", head, re.M)
            name, greeting = dict(fields)["name"], dict(fields)["greeting"]
            mock.character(
                name,
                description.strip(),
                greeting,
                [value for key, value in fields if key == "ask"],
                png(40 + 25 * n % 120, 60 + 45 * n % 110, 120) if n % 4 == 1 else None,
                notes=["Two entries of the character book were placed behind the description."],
            )
        ids = list(mock.characters)
        for n in range(14):
            mock.chat([ids[n * 3 % len(ids)]])
        self.talk = mock.chat([ids[-1]])
        replies = [
            [
                "Thursday, dear heart! He's stubborn as a gatepost, *leans out of the wagon* and he has opinions about turnips."
            ]
            * 2,
            [
                "Mirrors after dark. *shivers* I turn them to the wall, every one.\n\nDon't laugh. My aunt Petronel did the same, and she once argued with a thunderstorm and won."
            ],
            ["Hiccups! It cures hiccups. Peppermint, mostly 🌿, and a good deal of listening."],
        ]
        for n, (text, reply) in enumerate(
            zip(
                (
                    "What is your pony called?",
                    "What are you afraid of? I promise that I won't tell anybody at the market, not even the crows.",
                    "And your best potion?",
                ),
                replies,
            )
        ):
            mock.chats[self.talk]["turns"].append(
                {
                    "user": text,
                    "speaker": ids[-1],
                    "replies": reply,
                    "chosen": len(reply) - 1,
                    "cached_tokens": 150 + 60 * n,
                    "prompt_tokens": 180 + 62 * n,
                }
            )
        self.duo = mock.chat(ids[:2])
        mock.chats[self.duo]["turns"].append(
            {
                "user": "Do you two know each other?",
                "speaker": ids[1],
                "replies": ["We have met. It was raining."],
                "chosen": 0,
                "cached_tokens": 80,
                "prompt_tokens": 170,
            }
        )

    def test_views(self):
        for device, size in (("desktop", (1280, 820)), ("phone", (390, 800, True))):
            page.size(*size)
            for scheme in ("light", "dark"):
                page.media(scheme)
                self.home()
                shot(f"{device}-{scheme}-home")
                for name, chat in (("chat", self.talk), ("duo", self.duo), ("new", "c_0000000000000001")):
                    self.enter(chat)
                    shot(f"{device}-{scheme}-{name}")
                if device == "phone":
                    page.click(page.label("Show the chats"))
                    shot(f"{device}-{scheme}-side")
                    page.key("Escape")
                self.enter(self.talk)
                page.click(page.label("Edit your message"), -1)
                shot(f"{device}-{scheme}-edit")
                page.key("Escape")
                page.click(page.label("Report the reply"), -1)
                shot(f"{device}-{scheme}-report")
                self.home()
                page.click(page.label("About Wren"))
                shot(f"{device}-{scheme}-about")
                page.key("Escape")
                page.wait("!document.querySelector('dialog')")
                page.click("#home-tools button")
                shot(f"{device}-{scheme}-form")


class File(unittest.TestCase):
    """What the file itself says."""

    def test_it_asks_no_other_and_runs_no_text(self):
        text = PAGE.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
            "setHTML",
            "srcdoc",
        ):
            self.assertNotIn(word, text)
        self.assertEqual(
            {found for found in re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"'`)]*""", text)}
            - {"http://www.w3.org/2000/svg"},
            set(),
        )
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].strip()
        self.assertEqual(
            dict(part.strip().split(" ", 1) for part in policy.split(";")),
            {
                "default-src": "'none'",
                "script-src": "'unsafe-inline'",
                "style-src": "'unsafe-inline'",
                "img-src": "'self' blob: data:",
                "connect-src": "'self'",
                "base-uri": "'none'",
                "form-action": "'none'",
            },
        )
        self.assertLess(text.count("\n"), 1500)


if __name__ == "__main__":
    if not browsers.chromium():
        print("skipped: there is no chromium here")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
