"""Characters and chats of kaiju-server: turns, swipes, edits, forks; what is kept over restarts and kills; whose is whose.

    chats.py KAIJU_SERVER MODEL [Class.test ...]
"""

import json
import os
import pathlib
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import unittest

from running import OfServer, Running, png_card, wait_for

PIP = {"name": "Pip", "description": "Pip is a robot who keeps a garden. Pip grows blue tomatoes. Pip is afraid of snails."}


class Chats(OfServer):
    def ok(self, method, path, body=None, status=200):
        got, _, text = self.server.ask(method, path, {} if body is None and method == "POST" else body)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def chat_with(self, character, **more):
        return self.ok("POST", "/chats", {"character": character, **more}, 201)["id"]

    def pip(self):
        return self.ok("POST", "/characters", PIP, 201)["id"]

    def say(self, chat, text, **more):
        return self.ok("POST", f"/chats/{chat}/say", {"text": text, "temperature": 0, **more})

    def test_a_chat_remembers_and_computes_only_what_is_new(self):
        chat = self.chat_with(self.pip())
        first = self.say(chat, "What do you grow?")
        self.assertEqual((first["reply"], first["turn"], first["reason"]), ("I grow blue tomatoes.", 0, "stop"))
        second = self.say(chat, "What are you afraid of?")
        self.assertEqual(second["reply"], "I'm afraid of snails.")
        self.assertGreaterEqual(second["cached_tokens"], first["prompt_tokens"] + first["generated_tokens"] - 2)
        self.assertEqual([turn["user"] for turn in self.ok("GET", f"/chats/{chat}")["turns"]],
                         ["What do you grow?", "What are you afraid of?"])

    def test_a_chat_of_a_character_shares_its_description(self):
        pip = self.pip()
        self.say(self.chat_with(pip), "Hello!")
        again = self.say(self.chat_with(pip), "Good day.")
        self.assertGreaterEqual(again["cached_tokens"], self.ok("GET", f"/characters/{pip}")["tokens"] - 1)

    def test_swipes_edits_undo_and_forks(self):
        chat = self.chat_with(self.pip())
        self.say(chat, "Tell me a story.", temperature=1.0, seed=1)
        swiped = self.ok("POST", f"/chats/{chat}/swipe", {"temperature": 1.0, "seed": 1})
        turn = self.ok("GET", f"/chats/{chat}")["turns"][0]
        self.assertEqual((len(turn["replies"]), turn["chosen"]), (2, 1))
        self.assertNotEqual(turn["replies"][0], turn["replies"][1])
        self.assertGreaterEqual(swiped["cached_tokens"], swiped["prompt_tokens"] - 2)
        self.assertEqual(self.ok("POST", f"/chats/{chat}/choose", {"reply": 0})["turns"][0]["chosen"], 0)
        self.assertEqual(self.ok("POST", f"/chats/{chat}/edit", {"turn": 0, "part": "reply", "text": "Once."})["turns"][0]["replies"][0], "Once.")
        fork = self.ok("POST", f"/chats/{chat}/fork", {"turns": 1}, 201)
        self.assertEqual(fork["title"], self.ok("GET", f"/chats/{chat}")["title"] + ", forked")
        self.say(fork["id"], "And then?")
        self.assertEqual(len(self.ok("GET", f"/chats/{chat}")["turns"]), 1)
        edited = self.ok("POST", f"/chats/{fork['id']}/edit", {"turn": 0, "part": "user", "text": "What do you grow?"})
        self.assertEqual([turn["replies"] for turn in edited["turns"]], [[]])
        status, _, text = self.server.ask("POST", f"/chats/{fork['id']}/edit", {"turn": 0, "part": "user"})
        self.assertEqual((status, "text is missing" in text), (400, True), text)  # and the message is still there
        self.assertEqual(self.ok("POST", f"/chats/{fork['id']}/swipe", {"temperature": 0})["reply"], "I grow blue tomatoes.")
        self.assertEqual(self.ok("POST", f"/chats/{fork['id']}/undo")["turns"], [])

    def test_an_edited_character_is_a_version_that_running_chats_do_not_see(self):
        pip = self.pip()
        old = self.chat_with(pip)
        self.ok("PUT", f"/characters/{pip}", {**PIP, "description": "Pip is a robot who keeps bees. Pip is afraid of rain."}, 201)
        new = self.chat_with(pip)
        self.assertEqual(self.say(old, "What are you afraid of?")["reply"], "I'm afraid of snails.")
        self.assertEqual(self.ok("GET", f"/chats/{new}")["characters"][0]["version"], 2)
        self.ok("DELETE", f"/characters/{pip}")
        self.assertEqual(self.server.ask("POST", "/chats", {"character": pip})[0], 400)
        self.say(old, "Still there?")

    def test_a_card_in_a_png_brings_its_picture_and_greetings(self):
        card = png_card({"name": "Pip", "description": PIP["description"], "first_mes": "Beep!", "alternate_greetings": ["Boop."]})
        status, _, text = self.server.ask("POST", "/characters", card, {"content-type": "image/png"})
        self.assertEqual(status, 201, text)
        made = json.loads(text)
        chat = self.ok("POST", "/chats", {"character": made["id"]}, 201)
        self.assertEqual(chat["turns"][0]["replies"], ["Beep!", "Boop."])
        self.assertEqual(self.say(chat["id"], "What do you grow?")["turn"], 1)

    def test_several_characters_speak_in_one_chat(self):
        chat = self.ok("POST", "/chats", {"characters": ["wren", "silas"], "user": "Ann"}, 201)
        self.assertEqual([one["name"] for one in chat["characters"]], ["Wren", "Silas"])
        for speaker in ("silas", "wren"):
            self.say(chat["id"], "Who are you?", speaker=speaker)
        turns = self.ok("GET", f"/chats/{chat['id']}")["turns"]
        self.assertEqual([turn["speaker"] for turn in turns][-2:], ["silas", "wren"])

    def test_a_stream_tells_its_text_and_its_end_and_can_be_stopped(self):
        chat = self.chat_with(self.pip())
        text = self.server.ask("POST", f"/chats/{chat}/say", {"text": "What do you grow?", "stream": True, "temperature": 0})[2]
        data = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        self.assertEqual("".join(piece.get("text", "") for piece in data), "I grow blue tomatoes.")
        self.assertTrue(data[-1]["done"] and text.endswith("data: [DONE]\n\n"))
        answers = []
        long = {"text": "Go on.", "ignore_eos": True, "max_tokens": 3000, "loop_guard": False}
        thread = threading.Thread(target=lambda: answers.append(self.ok("POST", f"/chats/{chat}/say", long)))
        thread.start()
        self.wait_for(lambda: self.ok("GET", f"/chats/{chat}")["busy"])
        self.assertEqual(self.server.ask("POST", f"/chats/{chat}/say", {"text": "Me too!"})[0], 409)
        self.ok("POST", f"/chats/{chat}/stop")
        thread.join()
        self.assertEqual(answers[0]["reason"], "cancelled")

    def test_a_chat_is_brought_up_while_its_user_types(self):
        chat = self.chat_with(self.pip())
        said = self.say(chat, "What do you grow?")
        typed = self.ok("POST", f"/chats/{chat}/typing")
        self.assertGreaterEqual(typed["cached_tokens"], said["prompt_tokens"])
        self.assertGreaterEqual(typed["tokens"], typed["cached_tokens"])
        self.assertEqual(self.server.ask("POST", f"/chats/{chat}/typing", {"text": "x"})[0], 400)

    def test_a_characters_reply_follows_a_schema(self):
        chat = self.chat_with(self.pip())
        schema = {"type": "object", "properties": {"mood": {"enum": ["well", "tired"]}}, "required": ["mood"]}
        form = {"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}}
        status, _, text = self.server.ask("POST", f"/chats/{chat}/say", {"text": "How are you?", "response_format": form})
        if status == 400 and "without a grammar engine" in text:
            self.skipTest("the server was built without xgrammar")
        self.assertIn(json.loads(json.loads(text)["reply"])["mood"], ("well", "tired"))

    def test_mistakes_name_what_is_wrong(self):
        chat = self.chat_with(self.pip())
        for method, path, body, status, says in (
                ("POST", "/chats", {}, 400, "character is missing"), ("POST", "/chats", {"character": "nobody"}, 404, "nobody"),
                ("GET", "/chats/c_0000000000000000", None, 404, "no chat"), ("POST", f"/chats/{chat}/say", None, 400, "text is missing"),
                ("POST", f"/chats/{chat}/swipe", {}, 400, "no turn to answer"), ("POST", f"/chats/{chat}/undo", {}, 400, "no turn to undo"),
                ("POST", f"/chats/{chat}/edit", {"turn": 9, "part": "user", "text": "x"}, 400, "no turn 9"),
                ("POST", f"/chats/{chat}/report", {"kind": "boring"}, 400, "wrong refusal"), ("POST", "/characters", {"name": "X"}, 400, "description")):
            got, _, text = self.server.ask(method, path, body)
            self.assertEqual((got, says in json.loads(text)["error"]["message"]), (status, True), text)

    def refused(self, path, body, says, param=None, method="POST"):
        status, _, text = self.server.ask(method, path, body)
        error = json.loads(text)["error"]
        self.assertEqual((status, says in error["message"]), (400, True), text)
        if param:
            self.assertEqual(error["param"], param)

    def test_a_field_or_parameter_that_nobody_knows_is_refused_by_name(self):
        group = self.ok("POST", "/chats", {"characters": ["wren", "silas"]}, 201)["id"]
        chat = self.chat_with(self.pip())
        self.say(chat, "What do you grow?")
        for path, body, field in (
                ("/chats", {"character": "wren", "usr": "Ann"}, "usr"), (f"/chats/{group}/say", {"txt": "hello"}, "txt"),
                (f"/chats/{chat}/swipe", {"temprature": 1}, "temprature"), (f"/chats/{chat}/choose", {"reply": 0, "turn": 0}, "turn"),
                (f"/chats/{chat}/edit", {"turn": 0, "part": "user", "text": "x", "user": "y"}, "user"),
                (f"/chats/{chat}/undo", {"turns": 1}, "turns"), (f"/chats/{chat}/fork", {"turn": 1}, "turn"),
                (f"/chats/{chat}/stop", {"now": True}, "now"), (f"/chats/{chat}/rename", {"title": "x", "name": "y"}, "name"),
                (f"/chats/{chat}/report", {"kind": "bad reply", "coment": "no"}, "coment"),
                ("/characters", {**PIP, "greting": "Beep!"}, None)):
            self.refused(path, body, field or "greting", field)
        self.refused(f"/chats/{group}/say", {"txt": "hello"}, "did you mean text?")
        for path in ("/chats?limt=1", "/reports?from=1", "/characters/wren?v=1"):
            self.refused(path, None, "there is no parameter", method="GET")
        self.assertEqual(len(self.ok("GET", f"/chats/{chat}")["turns"]), 1)

    def test_a_field_is_asked_for_and_not_guessed(self):
        chat = self.chat_with(self.pip())
        self.say(chat, "What do you grow?")
        self.refused(f"/chats/{chat}/choose", {}, "reply is missing", "reply")
        self.refused(f"/chats/{chat}/edit", {}, "turn is missing", "turn")
        self.refused(f"/chats/{chat}/rename", {}, "title is missing", "title")
        self.refused("/chats", "", "the body is empty")
        self.refused("/chats", '{\n "character":: 1}', "line 2, column 14")

    def test_a_report_is_of_the_newest_turn_and_its_chosen_reply(self):
        chat = self.ok("POST", "/chats", {"character": "wren"}, 201)["id"]  # begins with a greeting
        self.say(chat, "Who are you?")
        swiped = self.ok("POST", f"/chats/{chat}/swipe", {"temperature": 1.5, "seed": 3})
        self.ok("POST", f"/chats/{chat}/report", {"kind": "bad reply"}, 201)
        reported = self.ok("GET", "/reports")["reports"][-1]
        self.assertEqual((reported["turn"], reported["reply"], reported["text"]), (1, 1, swiped["reply"]))

    def test_an_edit_of_what_the_user_said_takes_the_replies_and_all_later_turns(self):
        chat = self.chat_with(self.pip())
        for text in ("What do you grow?", "Do you like rain?", "Good night."):
            self.say(chat, text)
        edited = self.ok("POST", f"/chats/{chat}/edit", {"turn": 1, "part": "user", "text": "What are you afraid of?"})
        self.assertEqual([(turn["user"], len(turn["replies"])) for turn in edited["turns"]],
                         [("What do you grow?", 1), ("What are you afraid of?", 0)])
        self.assertEqual(self.ok("POST", f"/chats/{chat}/swipe", None)["turn"], 1)  # the next step, without a body
        self.say(chat, "Good night.")
        edited = self.ok("POST", f"/chats/{chat}/edit", {"turn": 1, "part": "reply", "text": "Of you."})
        self.assertEqual([turn["replies"][-1] for turn in edited["turns"]][1], "Of you.")
        self.assertEqual(len(edited["turns"]), 3)

    def test_a_chat_is_renamed_and_a_list_has_a_limit(self):
        for _ in range(2):
            chat = self.chat_with(self.pip())
        self.assertEqual(self.ok("POST", f"/chats/{chat}/rename", {"title": "The garden"})["title"], "The garden")
        self.assertEqual([one["title"] for one in self.ok("GET", "/chats?limit=1")["chats"]], ["The garden"])

    def test_a_speaker_is_an_id_or_a_name_that_one_character_has(self):
        chat = self.ok("POST", "/chats", {"characters": ["wren", "silas"]}, 201)["id"]
        self.say(chat, "Who are you?", speaker="Silas")
        self.assertEqual(self.ok("GET", f"/chats/{chat}")["turns"][-1]["speaker"], "silas")
        self.refused(f"/chats/{chat}/say", {"text": "x", "speaker": "Tess"}, "are wren (Wren), silas (Silas)", "speaker")

    def test_a_card_that_is_sent_as_a_form_is_told(self):
        status, _, text = self.server.ask("POST", "/characters", "--x\r\n", {"content-type": "multipart/form-data; boundary=x"})
        self.assertEqual((status, "--data-binary @card.png" in text), (400, True), text)

    def test_metrics_count_by_route_and_not_by_chat(self):
        chat = self.chat_with(self.pip())
        self.say(chat, "What do you grow?")
        self.wait_for(lambda: 'path="/chats/{}/say",status="200"' in self.server.ask("GET", "/metrics")[2])
        self.assertNotIn(chat, self.server.ask("GET", "/metrics")[2])

    def test_a_chat_takes_one_of_two_messages_at_once(self):
        chat, answers = self.chat_with(self.pip()), []
        ask = {"text": "Go on.", "ignore_eos": True, "max_tokens": 200, "loop_guard": False}
        threads = [threading.Thread(target=lambda: answers.append(self.server.ask("POST", f"/chats/{chat}/say", ask)[0]))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answers), [200, 409, 409, 409])
        self.assertEqual(len(self.ok("GET", f"/chats/{chat}")["turns"]), 1)

    def test_a_report_keeps_the_message(self):
        chat = self.chat_with(self.pip())
        self.say(chat, "What do you grow?")
        self.ok("POST", f"/chats/{chat}/report", {"turn": 0, "reply": 0, "kind": "bad reply", "comment": "no"}, 201)
        self.ok("DELETE", f"/chats/{chat}")
        self.assertEqual(self.ok("GET", "/reports")["reports"][-1]["text"], "I grow blue tomatoes.")


class Swipes(unittest.TestCase):
    def test_swipes_are_logged_for_consenting_users_who_went_on(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "swipes.jsonl")
            server = Running("--swipe-log", str(file))
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)

            def ok(path, body, status=201):
                got, _, text = server.ask("POST", path, body)
                self.assertEqual(got, status, text)
                return json.loads(text)

            chat = f"/chats/{ok('/chats', {'character': ok('/characters', PIP)['id']})['id']}"
            replies = [ok(chat + "/say", {"text": "Hello!", "temperature": 2, "log_swipes": True}, 200)["reply"]]
            replies += [ok(chat + "/swipe", {"temperature": 2}, 200)["reply"] for _ in range(2)]
            ok(chat + "/choose", {"reply": 1}, 200)
            self.assertEqual(file.read_text(), "")  # nobody has gone on yet
            ok(chat + "/say", {"text": "What do you grow?", "log_swipes": True}, 200)
            ok(chat + "/say", {"text": "Anything else?", "log_swipes": True}, 200)  # nothing was swiped
            ok(chat + "/swipe", {"temperature": 2}, 200)
            ok(chat + "/say", {"text": "Good night."}, 200)  # no consent
            (line,) = map(json.loads, file.read_text().splitlines())
            self.assertEqual(line["card"], f"{PIP['name']}\n{PIP['description']}")
            self.assertEqual(line["turns"][-1], ["user", "Hello!"])
            self.assertEqual((line["kept"], line["swiped"]), (replies[1], [replies[0], replies[2]]))
            self.assertEqual(server.stop(), 0)


class Kept(unittest.TestCase):
    def begin(self, store, *more):
        server = Running(*more, store=store)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def say(self, server, chat, text, **more):
        status, answer = server.post(f"/chats/{chat}/say", text=text, temperature=0, **more)
        self.assertEqual(status, 200, answer)
        return answer

    def two_turns(self, store, *more):
        server = self.begin(store, *more)
        server.ask("POST", "/characters", PIP)
        chat = server.post("/chats", character="pip")[1]["id"]
        self.say(server, chat, "What do you grow?")
        return server, chat, self.say(server, chat, "Do you like rain?")

    def test_a_restart_computes_only_what_is_new(self):
        replies = []
        for more, kept in ((), True), (("--kv", "none"), False), (("--kv-mib", "0"), False):
            with tempfile.TemporaryDirectory() as folder:
                server, chat, last = self.two_turns(folder + "/store", *more)
                self.assertEqual(server.stop(), 0)
                server = self.begin(folder + "/store", *more)
                answer = self.say(server, chat, "What are you afraid of?")
                self.assertGreaterEqual(answer["cached_tokens"], last["prompt_tokens"] if kept else 0)
                self.assertEqual(answer["cached_tokens"] > 0, kept)
                wait_for(server.log)  # the line comes after the answer
                self.assertEqual(server.log()[-1].get("restored", False), kept)
                replies.append(answer["reply"])
                self.assertEqual(server.stop(), 0)
        self.assertEqual(len(set(replies)), 1, replies)

    def test_a_chat_of_another_tokenizer_is_encoded_again_from_its_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            server, chat, _ = self.two_turns(folder + "/store", "--kv", "none")
            group = server.post("/chats", characters=["wren", "silas"], user="Ann")[1]["id"]  # begins with a greeting
            self.say(server, group, "Who are you?", speaker="silas")
            tokens = [server.get(f"/chats/{one}")["tokens"] for one in (chat, group)]
            described = server.get("/characters/pip")["tokens"]
            said = self.say(server, chat, "What are you afraid of?")["reply"]
            server.post(f"/chats/{chat}/undo")
            server.stop()
            with sqlite3.connect(folder + "/store") as store:  # ids that this model does not have
                for table, column in (("turns", "input_tokens"), ("replies", "tokens"), ("character_versions", "tokens")):
                    store.execute(f"UPDATE {table} SET tokenizer = 'another', {column} = X'FFFFFF7F' WHERE length({column}) > 0")
            store.close()
            server = self.begin(folder + "/store", "--kv", "none")
            for one, count in zip((chat, group), tokens):  # nearly: what was generated may be spelled otherwise
                self.assertLess(abs(server.get(f"/chats/{one}")["tokens"] - count), 6)
            self.assertEqual(server.get("/characters/pip")["tokens"], described)
            self.assertEqual(self.say(server, chat, "What are you afraid of?")["reply"], said)
            self.say(server, group, "And you?", speaker="wren")
            self.assertEqual(server.post(f"/chats/{chat}/swipe", temperature=0)[0], 200)
            self.assertEqual(server.post(f"/chats/{chat}/fork")[0], 201)
            server.process.terminate()
            self.assertEqual(server.process.stderr.read().count("another model's tokenizer"), 1)
            self.assertEqual(server.stop(), 0)

    def test_kv_that_is_damaged_older_or_of_nobody_changes_no_reply(self):
        with tempfile.TemporaryDirectory() as folder:
            server, chat, last = self.two_turns(folder + "/store")
            server.stop()
            file = pathlib.Path(folder, "store-kv", chat)
            good = file.read_bytes()
            replies = []
            for damage in (lambda data: data, lambda data: data[: len(data) // 2], lambda data: b"",
                           lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]):
                file.write_bytes(damage(good))
                server = self.begin(folder + "/store")
                replies.append(self.say(server, chat, "What are you afraid of?")["reply"])
                server.post(f"/chats/{chat}/undo")
                self.say(server, chat, "Good night.")
                server.process.send_signal(signal.SIGKILL)  # the file is older than the chat then
                server.stop()
                server = self.begin(folder + "/store")
                server.post(f"/chats/{chat}/undo")
                server.stop(signal.SIGKILL)
            self.assertEqual(len(set(replies)), 1, replies)
            server = self.begin(folder + "/store")
            file.write_bytes(good)
            server.ask("DELETE", f"/chats/{chat}")
            server.stop()
            self.assertEqual([path.name for path in file.parent.iterdir()], ["key"])
            self.assertEqual((file.parent / "key").stat().st_mode & 0o77, 0)

    def test_a_chat_that_is_deleted_while_its_reply_is_written_leaves_no_kv(self):
        with tempfile.TemporaryDirectory() as folder:
            server, chat, _ = self.two_turns(folder + "/store")
            server.ask("DELETE", f"/chats/{chat}")
            for _ in range(20):  # the reply ends before the chat is gone, or after
                chat = server.post("/chats", character="pip")[1]["id"]
                talk = threading.Thread(target=server.ask, args=("POST", f"/chats/{chat}/say", {
                    "text": "Go on.", "ignore_eos": True, "loop_guard": False, "max_tokens": 3000}))
                talk.start()
                wait_for(lambda: server.metric("kaiju_requests_unfinished") > 0)
                self.assertEqual(server.ask("DELETE", f"/chats/{chat}")[0], 200)
                talk.join()
            self.assertEqual(server.stop(), 0)
            self.assertEqual([path.name for path in pathlib.Path(folder, "store-kv").iterdir()], ["key"])

    def test_no_answered_turn_is_lost_when_the_server_is_killed(self):
        kills = int(os.environ.get("KAIJU_SERVER_KILLS", "4"))
        seed = int(os.environ.get("KAIJU_TEST_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}, {kills} kills")
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            store, answered = os.environ.get("KAIJU_SERVER_STORE", folder + "/store"), []
            chat = None
            for _ in range(kills):
                server = Running(store=store)
                if chat is None:
                    server.ask("POST", "/characters", PIP)
                    chat = server.post("/chats", character="pip")[1]["id"]
                turns = server.get(f"/chats/{chat}")["turns"]
                # the turn that was under way may be there too, whole
                self.assertLessEqual(len(turns) - len(answered), 1)
                self.assertEqual([(turn["user"], turn["replies"]) for turn in turns[:len(answered)]], answered)
                answered = [(turn["user"], turn["replies"]) for turn in turns]

                def talk():
                    try:
                        while True:
                            text = f"What is {len(answered)}?"
                            status, answer = server.post(f"/chats/{chat}/say", text=text, max_tokens=8, temperature=1.0)
                            if status == 200:
                                answered.append((text, [answer["reply"]]))
                    except (OSError, ValueError):
                        pass  # killed
                    except Exception as problem:  # http.client's
                        if "RemoteDisconnected" not in repr(problem) and "IncompleteRead" not in repr(problem):
                            raise

                thread = threading.Thread(target=talk)
                thread.start()
                thread.join(draw.uniform(0.05, 1.0))
                self.assertEqual(server.stop(signal.SIGKILL), -signal.SIGKILL)
                thread.join()
            self.assertGreater(len(answered), 0)

    def test_chats_of_one_key_are_not_anothers(self):
        server = Running(keys=[{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-bob", "name": "bob"}])
        self.addCleanup(server.stop)
        ann, bob = ({"authorization": f"Bearer key-of-{name}"} for name in ("ann", "bob"))
        chat = json.loads(server.ask("POST", "/chats", {"character": "wren"}, ann)[2])["id"]
        self.assertEqual(server.ask("GET", f"/chats/{chat}", None, ann)[0], 200)
        self.assertEqual(server.ask("GET", f"/chats/{chat}", None, bob)[0], 404)
        self.assertEqual(json.loads(server.ask("GET", "/chats", None, bob)[2])["chats"], [])
        self.assertEqual(server.ask("GET", "/chats")[0], 401)
        self.assertEqual(server.ask("GET", "/reports", None, bob)[0], 403)
        answers = []
        talk = threading.Thread(target=lambda: answers.append(server.ask("POST", f"/chats/{chat}/say", {
            "text": "Go on.", "ignore_eos": True, "loop_guard": False, "max_tokens": 400}, ann)))
        talk.start()
        wait_for(lambda: server.metric("kaiju_requests_unfinished") > 0)
        for path in ("", "/stop"):
            self.assertEqual(server.ask("DELETE" if not path else "POST", f"/chats/{chat}{path}", None, bob)[0], 404)
        talk.join()
        self.assertIn('"reason":"length"', answers[0][2])

    def test_a_character_is_changed_by_the_key_that_made_it_and_by_trusted_keys_alone(self):
        server = Running(keys=[{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-bob", "name": "bob"},
                               {"key": "key-of-site", "name": "site", "trusted": True}])
        self.addCleanup(server.stop)
        ann, bob, site = ({"authorization": f"Bearer key-of-{name}"} for name in ("ann", "bob", "site"))
        self.assertEqual(server.ask("POST", "/characters", PIP, ann)[0], 201)
        for key, may in (ann, [True, False]), (bob, [False, False]), (site, [True, True]):
            listed = json.loads(server.ask("GET", "/characters", None, key)[2])["characters"]
            shown = {one["id"]: one["changeable"] for one in listed}
            self.assertEqual([shown["pip"], shown["wren"]], may)
            self.assertEqual(json.loads(server.ask("GET", "/characters/pip", None, key)[2])["changeable"], may[0])
        for method, path, body in (("PUT", "", PIP), ("DELETE", "", None), ("POST", "/restore", None)):
            for who, key in (("pip", bob), ("wren", bob), ("wren", ann)):
                status, _, text = server.ask(method, f"/characters/{who}{path}", body, key)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "not_yours"))
        self.assertEqual(server.ask("DELETE", "/characters/pip", None, ann)[0], 200)
        self.assertEqual(server.ask("POST", "/chats", {"character": "pip"}, ann)[0], 400)
        status, _, text = server.ask("PUT", "/characters/pip", PIP, ann)
        self.assertEqual((status, "restore it first" in text), (400, True))
        status, _, text = server.ask("POST", "/characters/pip/restore", None, site)
        self.assertEqual((status, json.loads(text)["retired"]), (200, False))
        self.assertEqual(server.ask("PUT", "/characters/pip", PIP, ann)[0], 201)
        self.assertEqual(server.ask("POST", "/chats", {"character": "pip"}, bob)[0], 201)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
