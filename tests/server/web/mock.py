"""Mock: the characters and chats of kaiju-server over HTTP, as a page sees them. A reply follows from its number.

It refuses what the contract does not name. A user text chooses what happens to its reply: "[hold]" waits in the middle
until it is stopped or released, "[cut]" loses the connection, "[error]" is an error inside the stream."""

import base64
import json
import re
import struct
import threading
import time
import urllib.parse
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAMPLING = {"temperature", "max_tokens", "seed"}
REPLIES = [
    "*looks up from the kettle* Thursday is my pony. He is stubborn, dear heart, and he knows it. Oh, a wren!",
    "My pony? Thursday. He pulls the red wagon when it suits him.",
    "That would be Thursday 🐎. He ate the plum jam 👩‍🚀👍🏽 and he was not sorry.",
]


def png(red, green, blue, card=None):
    """A picture of one colour that grows lighter downwards, with a card inside if one is given."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(min(255, c + y) for c in (red, green, blue)) * 96 for y in range(96))
    text = chunk(b"tEXt", b"chara\0" + base64.b64encode(card)) if card else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 96, 96, 8, 2, 0, 0, 0))
        + text
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class Refusal(Exception):
    def __init__(self, status, message, param=None):
        super().__init__(message)
        self.status, self.body = status, {
            "error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}
        }


class Mock:
    """The state and the server. Times and ids count up, so that equal calls give equal answers."""

    def __init__(self, page):
        self.page = page  # the path of index.html
        self.lock = threading.RLock()
        self.reset()
        mock = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def respond(self, method):
                mock.answer(self, method)

            do_GET = lambda self: self.respond("GET")
            do_POST = lambda self: self.respond("POST")
            do_PUT = lambda self: self.respond("PUT")
            do_DELETE = lambda self: self.respond("DELETE")

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # clients that leave
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        with self.lock:
            self.characters, self.chats, self.reports, self.requests, self.failures = {}, {}, [], [], []
            self.key, self.clock, self.streams, self.held = None, 0, {}, []

    def close(self):
        for stop in list(self.streams.values()):
            stop.set()
        self.server.shutdown()
        self.server.server_close()

    # ---- what a test sets up ----
    def character(self, name, description="Somebody.", greeting="", suggestions=(), picture=None, notes=()):
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "character"
        identifier, n = slug, 1
        while identifier in self.characters:
            n += 1
            identifier = f"{slug}-{n}"
        self.characters[identifier] = {"versions": [], "retired": False}
        self.version(identifier, name, description, greeting, suggestions, picture, notes)
        return identifier

    def version(self, identifier, name, description, greeting="", suggestions=(), picture=None, notes=()):
        one = self.characters[identifier]
        one["versions"].append(
            {
                "name": name,
                "description": description,
                "greeting": greeting,
                "suggestions": list(suggestions),
                "picture": picture,
                "notes": list(notes),
            }
        )

    def chat(self, characters, user=None, title=None):
        self.clock += 1
        identifier = f"c_{self.clock:016x}"
        turns = []
        for one in characters[:1]:
            greeting = self.characters[one]["versions"][-1]["greeting"]
            if greeting:
                turns.append(
                    {
                        "user": None,
                        "speaker": one,
                        "replies": [greeting],
                        "chosen": 0,
                        "cached_tokens": 0,
                        "prompt_tokens": 0,
                    }
                )
        names = [self.characters[one]["versions"][-1]["name"] for one in characters]
        self.chats[identifier] = {
            "id": identifier,
            "title": title or " and ".join(names),
            "user": user,
            "turns": turns,
            "context": 4096,
            "busy": False,
            "characters": [
                {"id": one, "version": len(self.characters[one]["versions"]), "name": name}
                for one, name in zip(characters, names)
            ],
            "updated": self.now(),
        }
        return identifier

    def fail(self, path, status, message, times=1):
        """The next requests to paths that match are refused."""
        self.failures += [(re.compile(path), status, message)] * times

    def hold(self, path):
        """Requests to paths that match wait until the event that this returns is set."""
        event = threading.Event()
        self.held.append((re.compile(path), event))
        return event

    def sent(self, path):
        """The bodies that were sent to paths that match, oldest first."""
        return [body for method, at, body, _ in self.requests if method != "GET" and re.search(path, at)]

    def release(self, chat):
        self.streams[chat].release.set()

    def now(self):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600 * 26 + self.clock * 60))

    # ---- answers ----
    def answer(self, handler, method):
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path = urllib.parse.urlsplit(handler.path)
        kind = handler.headers.get("Content-Type", "")
        value = (
            json.loads(body) if body and kind == "application/json" and method != "GET" and body[:1] == b"{" else body
        )
        for held, event in self.held:
            if held.search(f"{method} {path.path}"):
                event.wait(30)
        try:
            with self.lock:
                self.requests.append((method, handler.path, value, dict(handler.headers)))
                if (
                    path.path not in ("/", "/favicon.ico")
                    and self.key
                    and handler.headers.get("Authorization") != f"Bearer {self.key}"
                ):
                    raise Refusal(
                        401,
                        (
                            "This server wants an API key."
                            if not handler.headers.get("Authorization")
                            else "This API key is unknown."
                        ),
                    )
                for failure in self.failures:
                    if failure[0].search(f"{method} {path.path}"):
                        self.failures.remove(failure)
                        raise Refusal(*failure[1:])
                status, answer = self.route(handler, method, path, value, kind)
            if callable(answer):
                answer()
                return
        except Refusal as refusal:
            status, answer = refusal.status, refusal.body
        data, kind = (
            answer
            if isinstance(answer, tuple)
            else (json.dumps(answer).encode() if answer is not None else b"", "application/json")
        )
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def route(self, handler, method, path, body, kind):
        if method == "GET" and path.path == "/":
            with open(self.page, "rb") as file:
                return 200, (file.read(), "text/html; charset=utf-8")
        for verb, pattern, function in (
            ("POST", r"/characters", lambda: self.create(body, kind)),
            ("GET", r"/characters", lambda: (200, {"characters": [self.brief(one) for one in self.characters]})),
            ("GET", r"/characters/([\w-]+)", lambda one: (200, self.full(one, urllib.parse.parse_qs(path.query)))),
            ("PUT", r"/characters/([\w-]+)", lambda one: self.create(body, kind, one)),
            ("DELETE", r"/characters/([\w-]+)", self.retire),
            ("POST", r"/characters/([\w-]+)/restore", self.restore),
            ("GET", r"/characters/([\w-]+)/picture", self.picture),
            ("POST", r"/chats", lambda: self.begin(body)),
            ("GET", r"/chats", lambda: (200, {"chats": [self.listed(one) for one in self.chats.values()]})),
            ("GET", r"/chats/(\w+)", lambda one: (200, self.shown(one))),
            ("DELETE", r"/chats/(\w+)", lambda one: (200, self.chats.pop(self.has(one)["id"]) and {})),
            ("POST", r"/chats/(\w+)/(say|swipe)", lambda one, what: self.speak(handler, one, what, body)),
            (
                "POST",
                r"/chats/(\w+)/(choose|edit|undo|fork|stop|report)",
                lambda one, what: getattr(self, what)(self.has(one), body),
            ),
        ):
            found = re.fullmatch(pattern, path.path)
            if found and verb == method:
                return function(*found.groups())
        raise Refusal(404, f"There is no {method} {path.path}.")

    def has(self, identifier):
        if identifier not in self.chats:
            raise Refusal(404, f"There is no chat {identifier}.")
        return self.chats[identifier]

    def fields(self, body, needed, allowed=()):
        body = body or {}
        if not isinstance(body, dict):
            raise Refusal(400, "The body must be a JSON object.")
        for name in body:
            if name not in needed and name not in allowed:
                raise Refusal(400, f"Unknown field: {name}.", name)
        for name in needed:
            if name not in body:
                raise Refusal(400, f"The field {name} is missing.", name)
        return body

    # characters
    def create(self, body, kind, identifier=None):
        picture = None
        if kind == "image/png":
            found = re.search(rb"tEXtchara\0(.*?)....IDAT", body, re.S)
            if not found:
                raise Refusal(400, 'This PNG holds no character: it has no tEXt chunk "chara" or "ccv3".')
            body, picture = json.loads(base64.b64decode(found[1][:-4])), body
        elif kind == "text/plain":
            head, description = body.decode().split("\n\n", 1)
            body = {"name": re.search("^name: (.*)$", head, re.M)[1], "description": description}
        elif kind != "application/json" or not isinstance(body, dict):
            raise Refusal(400, "The body is no JSON object: send a card, or a PNG with a card inside.")
        card = body.get("data", body)
        for name in ("name", "description"):
            if not isinstance(card.get(name), str) or not card[name]:
                raise Refusal(400, f"The card has no {name}.", name)
        own = {"name", "description", "greeting", "suggestions"}
        if card is body and "first_mes" not in card and set(card) - own:
            raise Refusal(400, f"Unknown field: {min(set(card) - own)}.", min(set(card) - own))
        notes = (
            ["2 entries of the character book were placed behind the description."] if "character_book" in card else []
        )
        values = (
            card["name"],
            card["description"],
            card.get("greeting", card.get("first_mes", "")),
            card.get("suggestions", []),
            picture,
            notes,
        )
        if identifier:
            self.full(identifier)
            self.version(identifier, *values)
        else:
            identifier = self.character(*values)
        return 201, self.full(identifier)

    def brief(self, identifier):
        one = self.characters[identifier]
        last = one["versions"][-1]
        return {
            "id": identifier,
            "version": len(one["versions"]),
            "name": last["name"],
            "greeting": last["greeting"],
            "suggestions": last["suggestions"],
            "picture": last["picture"] is not None,
            "retired": one["retired"],
        }

    def full(self, identifier, query=None):
        if identifier not in self.characters:
            raise Refusal(404, f"There is no character {identifier}.")
        versions = self.characters[identifier]["versions"]
        n = int((query or {}).get("version", [len(versions)])[0])
        one = versions[n - 1]
        return {
            "id": identifier,
            "version": n,
            "name": one["name"],
            "description": one["description"],
            "greeting": one["greeting"],
            "tokens": len(one["description"]) // 4 + 1,
            "digest": f"{zlib.crc32(one['description'].encode()):08x}",
            "changeable": self.characters[identifier].get("changeable", True),
            "notes": one["notes"],
            "picture": one["picture"] is not None,
            "versions": list(range(1, len(versions) + 1)),
        }

    def retire(self, identifier):
        self.full(identifier)
        self.characters[identifier]["retired"] = True
        return 200, {}

    def restore(self, identifier):
        self.full(identifier)
        self.characters[identifier]["retired"] = False
        return 200, self.full(identifier)

    def picture(self, identifier):
        self.full(identifier)
        data = self.characters[identifier]["versions"][-1]["picture"]
        if not data:
            raise Refusal(404, "This character has no picture.")
        return 200, (data, "image/png")

    # chats
    def begin(self, body):
        body = self.fields(body, (), ("character", "characters", "user"))
        ids = body.get("characters") or [body["character"]]
        for one in ids:
            self.full(one)
            if self.characters[one]["retired"]:
                raise Refusal(409, f"The character {one} is retired.")
        return 201, self.shown(self.chat(ids, body.get("user")))

    def listed(self, chat):
        return {
            "id": chat["id"],
            "title": chat["title"],
            "characters": [one["id"] for one in chat["characters"]],
            "turns": len(chat["turns"]),
            "updated": chat["updated"],
        }

    def shown(self, identifier):
        chat = self.has(identifier)
        tokens = (
            100 + sum(len(turn["user"] or "") + len(turn["replies"][turn["chosen"]]) for turn in chat["turns"]) // 4
        )
        return {name: chat[name] for name in ("id", "title", "characters", "turns", "context", "busy")} | {
            "tokens": min(tokens, chat["context"])
        }

    def choose(self, chat, body):
        turn = chat["turns"][-1]
        n = self.fields(body, ("reply",))["reply"]
        if not 0 <= n < len(turn["replies"]):
            raise Refusal(400, f"There is no reply {n}.", "reply")
        turn["chosen"] = n
        return 200, {}

    def edit(self, chat, body):
        body = self.fields(body, ("turn", "part", "text"))
        turn = chat["turns"][body["turn"]]
        if body["part"] == "user":
            turn["user"] = body["text"]
            del chat["turns"][body["turn"] + 1 :]
        else:
            turn["replies"][turn["chosen"]] = body["text"]
        return 200, {}

    def undo(self, chat, body):
        self.fields(body, ())
        if not chat["turns"]:
            raise Refusal(409, "There is no turn to undo.")
        chat["turns"].pop()
        return 200, {}

    def fork(self, chat, body):
        n = self.fields(body, ("turns",))["turns"]
        made = self.chat([one["id"] for one in chat["characters"]], chat["user"], f"{chat['title']}, forked")
        self.chats[made]["turns"] = json.loads(json.dumps(chat["turns"][:n]))
        return 201, self.shown(made)

    def stop(self, chat, body):
        self.fields(body, ())
        if chat["id"] in self.streams:
            self.streams[chat["id"]].set()
        return 200, {}

    def report(self, chat, body):
        body = self.fields(body, ("turn", "reply", "kind"), ("comment",))
        if body["kind"] not in ("wrong refusal", "bad reply"):
            raise Refusal(400, 'The kind of a report is "wrong refusal" or "bad reply".', "kind")
        self.reports.append({"chat": chat["id"], **body})
        return 201, {}

    def speak(self, handler, identifier, what, body):
        chat = self.has(identifier)
        body = self.fields(body, ("text",) if what == "say" else (), {"speaker", "stream"} | SAMPLING)
        if chat["busy"]:
            raise Refusal(409, "This chat's reply is being written. Wait for it, or stop it.")
        if not body.get("stream"):
            raise Refusal(400, "The page streams.", "stream")
        turns = chat["turns"]
        if what == "swipe" and not turns:
            raise Refusal(409, "There is no turn to answer again.")
        text = body["text"] if what == "say" else turns[-1]["user"] or ""
        turn = (
            turns[-1]
            if what == "swipe"
            else {
                "user": text or None,
                "speaker": body.get("speaker", chat["characters"][0]["id"]),
                "replies": [],
                "chosen": 0,
            }
        )
        asked = re.search(r"\[reply: (.*)\]", text, re.S)
        whole = asked[1] if asked else REPLIES[len(turn["replies"]) % len(REPLIES)]
        prompt = 120 + 40 * len(turns)
        counts = {"prompt_tokens": prompt, "cached_tokens": prompt - 12 if len(turns) > 1 or what == "swipe" else 64}
        stop = threading.Event()
        stop.release = threading.Event()
        chat["busy"], self.streams[identifier] = True, stop

        def stream():
            try:
                handler.send_response(200)
                handler.send_header("Content-Type", "text/event-stream")
                handler.send_header("Connection", "close")
                handler.end_headers()
                handler.close_connection = True

                def send(data):
                    """In small chunks. After one that cuts a character in two the rest waits, so that no one joins them."""
                    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
                    raw = f"data: {text}\n\n".encode()
                    size = 7 if len(raw) < 400 else 4096
                    for at in range(0, len(raw), size):
                        handler.wfile.write(raw[at : at + size])
                        if raw[at + size : at + size + 1] and raw[at + size] & 0xC0 == 0x80:
                            time.sleep(0.03)

                pieces, reason, said = re.findall(r"\s*\S+|\s+", whole), "stop", ""
                for n, piece in enumerate(pieces):
                    if n == 3 and "[hold]" in text and what == "say":
                        while not stop.wait(0.01) and not stop.release.is_set():
                            pass
                    if n == 3 and "[cut]" in text:
                        return
                    if n == 3 and "[error]" in text:
                        send(
                            {
                                "error": {
                                    "message": "The engine ran out of KV blocks.",
                                    "type": "server_error",
                                    "param": None,
                                    "code": None,
                                }
                            }
                        )
                        return
                    if stop.is_set():
                        reason = "cancelled"
                        break
                    said += piece
                    send({"text": piece})
                if "[length]" in text:
                    reason = "length"
                with self.lock:
                    if what == "say":
                        turns.append(turn)
                    turn["replies"].append(said)
                    turn["chosen"] = len(turn["replies"]) - 1
                    turn.update(counts)
                    self.clock += 1
                    chat["updated"], chat["busy"] = self.now(), False
                send(
                    {
                        "done": True,
                        "turn": len(turns) - 1,
                        "reply": said,
                        "reason": reason,
                        "generated_tokens": len(pieces),
                        **counts,
                    }
                )
                send("[DONE]")
            finally:
                chat["busy"] = False
                self.streams.pop(identifier, None)

        return 200, stream


if __name__ == "__main__":  # to look at the page by hand: mock.py INDEX_HTML
    import sys

    mock = Mock(sys.argv[1])
    mock.character(
        "Wren",
        "Wren is a travelling hedge witch.",
        "Welcome to the wagon.",
        ["What is your pony called?"],
        png(40, 90, 80),
    )
    print(mock.url, flush=True)
    threading.Event().wait()
