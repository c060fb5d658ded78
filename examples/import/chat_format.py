"""Derives the chat format of a kaiju checkpoint (docs/checkpoint.md) from the Jinja template of an open model.

    python3 chat_format.py MODEL_FOLDER --out chat_format.json   # Hugging Face
    python3 chat_format.py model.gguf --out chat_format.json     # GGUF, of which it reads the metadata alone

kaiju runs no Jinja. This program renders the template on probe conversations, in jinja2's sandbox with the functions
that transformers gives it, and derives what stands around the texts of each role. Then it renders 1,000 random
conversations and compares each with what the chat format makes of it: the control tokens and the texts between them
must be the same. A template that does not fit is refused, with the reason. Needs jinja2.
"""

import argparse
import datetime
import json
import os
import random
import re
import sys

import tokenizer as tokenizers_of_models

ROLES = ("system", "user", "assistant")
THINK_END = "</think>"
# White space of str.strip() is all or nothing: one of each kind shows which a template removes.
_SPACES = {"\n": "a newline", " ": "a space", "\t": "a tab", "\u3000": "U+3000"}
# Texts that a template obeys instead of writing them: switches inside texts are plain text to kaiju.
COMMANDS = ("<tool_response>", "</tool_response>", "/think", "/no_think", "/system_override")
_MARKERS = {"system": "Qsx{}Zs", "user": "Qux{}Zu", "assistant": "Qax{}Za"}
_FALLBACK_JOINER = "\n\n"
_PRIVATE_USE = 0xF0000


class Unsupported(Exception):
    """What the template does and a chat format cannot, and what can be done."""


def environment(date):
    """jinja2 as transformers sets it up, with a clock that stands still."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks what the model says, for training: it renders its body."""
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context, operator, left, right):
            sizes = [len(side) if hasattr(side, "__len__") else abs(side) for side in (left, right)]
            if operator == "**" or max(sizes) > 10**6 or sizes[0] * sizes[1] > 10**6:
                raise jinja2.exceptions.SecurityError(f"operator {operator} with large values")
            return super().call_binop(context, operator, left, right)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    sandbox = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    sandbox.filters["tojson"] = tojson
    sandbox.globals.update(raise_exception=raise_exception, strftime_now=date.strftime)
    return sandbox


class Template:
    """A chat template with the special tokens of its tokenizer.

    `specials` maps the text of each special token to its id; `control` are the ids of those that are control tokens.
    `variables` are what the template reads besides the messages: bos_token, enable_thinking and others."""

    def __init__(self, source, specials, control=None, variables=None, date=datetime.date(2025, 1, 1)):
        import jinja2
        self.source, self.specials = source, {text: number for text, number in specials.items() if text}
        self.control = set(specials.values()) if control is None else set(control)
        self.variables = dict(variables or {})
        self._error = jinja2.exceptions.TemplateError
        try:
            self._compiled = environment(date).from_string(source)
        except self._error as problem:
            raise Unsupported(f"the template is not Jinja that jinja2 reads: {problem}") from None
        self._sizes = sorted({len(special) for special in self.specials}, reverse=True)
        firsts = "".join(sorted({re.escape(special[0]) for special in self.specials}))
        self._firsts = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def render(self, messages, generation=True):
        """The prompt as text; Unsupported if the template refuses the messages."""
        try:
            return self._compiled.render(messages=messages, tools=None, documents=None,
                                         add_generation_prompt=generation, **self.variables)
        except self._error as problem:
            raise Unsupported(f"the template says: {problem}") from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
            raise Unsupported(f"the template fails: {type(problem).__name__}: {problem}") from None

    def _found(self, text):
        """Where the special tokens of a text are, the longest that begins first: (begin, end) each."""
        at = 0
        for first in self._firsts.finditer(text):
            begin = first.start()
            size = next((size for size in self._sizes if text[begin:begin + size] in self.specials), 0)
            if size and begin >= at:
                at = begin + size
                yield begin, at

    def items(self, text):
        """The text as a list of token ids and texts between them."""
        parts, at = [], 0
        for begin, end in self._found(text):
            parts += [text[at:begin], self.specials[text[begin:end]]]
            at = end
        return [part for part in parts + [text[at:]] if part != ""]

    def hide(self, text, except_for=None):
        """The text with its special tokens hidden from the template: in a message's text they must stay text."""
        out, at = "", 0
        for begin, end in self._found(text):
            special = text[begin:end]
            out += text[at:begin] + (special if special == except_for else _hidden(special))
            at = end
        return out + text[at:]


def _hidden(text):
    """Each character as a private-use one, which a template neither knows nor trims."""
    return "".join(chr(ord(character) + _PRIVATE_USE) if character < "\uFFFE" else character for character in text)


def _unhidden(text):
    return re.sub("[\U000F0000-\U000FFFFD]", lambda found: chr(ord(found[0]) - _PRIVATE_USE), text)


def _conversation(roles):
    """Messages of these roles whose texts are markers."""
    return [{"role": role, "content": _MARKERS[role].format(number)} for number, role in enumerate(roles)]


def _gaps(template, messages, generation=True):
    """What stands before, between and after the messages' texts, and the order in which the texts come."""
    rendered = template.render(messages, generation)
    places = []
    for number, message in enumerate(messages):
        marker = re.search(r"Q[sua]x\d+Z[sua]", message["content"])[0]
        count = rendered.count(marker)
        if count != 1:
            what = "leaves out" if count == 0 else f"repeats {count} times"
            raise Unsupported(f"the template {what} the text of the {message['role']} message {number}")
        places.append((rendered.index(marker), len(marker), number))
    gaps, at = [], 0
    for begin, size, _ in sorted(places):
        gaps.append(rendered[at:begin])
        at = begin + size
    return gaps + [rendered[at:]], [number for _, _, number in sorted(places)]


def _without(text, begin="", end="", what=""):
    if not (text.startswith(begin) and text.endswith(end) and len(text) >= len(begin) + len(end)):
        raise Unsupported(f"{what}: {text!r} should begin with {begin!r} and end with {end!r}")
    return text[len(begin):len(text) - len(end)]


def _trim(template, role, side, system):
    """What the template removes from one end of a role's texts."""
    roles = (["system"] if system else []) + ["user", "assistant", "user"]
    at = {"system": 0, "user": int(system), "assistant": int(system) + 1}[role]
    plain, _ = _gaps(template, _conversation(roles))
    removed = set()
    for space, name in _SPACES.items():
        messages = _conversation(roles)
        content = messages[at]["content"]
        messages[at]["content"] = space + content if side == "left" else content + space
        gaps, _ = _gaps(template, messages)
        changed = [number for number in range(len(gaps)) if gaps[number] != plain[number]]
        if not changed:
            removed.add(space)
            continue
        number = changed[0]
        padded = plain[number] + space if side == "left" else space + plain[number]
        if len(changed) > 1 or gaps[number] != padded:
            raise Unsupported(f"the template changes a {role} text that {'begins' if side == 'left' else 'ends'} with "
                              f"{name}")
    if removed == set(_SPACES):
        return "space"
    if removed == {"\n"}:
        return "newlines"
    if removed:
        raise Unsupported(f"the template removes {' and '.join(_SPACES[space] for space in removed)} at the {side} end "
                          f"of {role} texts, but no other white space")
    return None


def _drops_reasoning(template):
    """Whether the template leaves out earlier replies up to </think>."""
    if THINK_END not in template.source:
        return False
    messages = _conversation(["user", "assistant", "user"])
    text = messages[1]["content"]
    messages[1]["content"] = f"Qreason{THINK_END}\n\n{text}"
    rendered = template.render(messages)
    if "Qreason" in rendered:
        return False
    if f"\n\n{text}" in rendered and f"\n\n{text}" not in template.render(_conversation(["user", "assistant", "user"])):
        raise Unsupported(f"the template leaves out replies up to {THINK_END}, but keeps the newlines after it")
    return True


def _named(template, role, after_previous):
    """What stands before a text whose speaker has a name, with None for the name; None if the template knows none."""
    messages = _conversation(["user", "assistant", "user"])
    messages[{"user": 2, "assistant": 1}[role]]["name"] = "Qname"
    rendered = template.render(messages)
    if "Qname" not in rendered:
        return None
    gaps, _ = _gaps(template, messages)
    gap = _without(gaps[{"user": 2, "assistant": 1}[role]], after_previous, "", "a name of a speaker")
    if gap.count("Qname") != 1 or rendered.count("Qname") != 1:
        raise Unsupported(f"the template repeats the name of a {role} message")
    begin, end = gap.split("Qname")
    return template.items(begin) + [None] + template.items(end)


def _refuses(template, roles):
    try:
        template.render(_conversation(roles))
    except Unsupported:
        return True
    return False


def derive(template, stop=()):
    """(chat format, notes, reference): the object that the checkpoint stores, what a person should know of it, and what
    check() compares it with. `stop` are token ids that end a reply besides the format's own control tokens."""
    notes = []
    first, _ = _gaps(template, _conversation(["user"]))
    alone, _ = _gaps(template, _conversation(["user"]), generation=False)
    ended, _ = _gaps(template, _conversation(["user", "assistant"]), generation=False)
    begin_user, between, next_user, tail = _gaps(template, _conversation(["user", "assistant", "user"]))[0]
    user_after, assistant_after = alone[1], ended[2]
    reply = _without(first[1], user_after, "", "what begins a reply")
    user_before = _without(next_user, assistant_after, "", "between a reply and the next user message")
    assistant_before = _without(between, user_after, "", "between a user message and its reply")
    begin = _without(begin_user, "", user_before, "before the first user message")
    if (first[0], alone[0], tail) != (begin_user, begin_user, first[1]):
        raise Unsupported("the template writes the same messages differently in a longer conversation")
    kept, missing = reply, ""
    if not reply and any(isinstance(item, int) for item in template.items(assistant_before)):
        reply = kept = missing = assistant_before
        notes.append(f"the template does not say what begins a reply: it is {reply!r}, as before earlier replies")
    elif reply != assistant_before:
        added = reply[len(assistant_before):]
        if reply.startswith(assistant_before) and added.count("<think>") == added.count(THINK_END):
            notes.append(f"a reply begins with {added!r}, which the template leaves out of earlier replies. kaiju "
                         "keeps it there, so that the prompt of each turn begins with the prompt of the turn before")
        elif reply or assistant_before.strip():
            kept = assistant_before
            notes.append(f"a reply begins with {reply!r}, and an earlier reply with {kept!r}. kaiju does the same: a "
                         "prompt made of texts does not begin with the prompt of the turn before. A conversation that "
                         "runs keeps its tokens, so its prompts do")
        else:  # white space, which the model writes
            kept = assistant_before

    system, place, moved = _derive_system(template, begin, user_before, (between, next_user, tail), notes)
    form = {}
    if begin:
        form["begin"] = template.items(begin)
    if kept != reply:
        form["reply"] = template.items(reply)
    lists = {"system": system, "user": (user_before, user_after), "assistant": (kept, assistant_after)}
    for role in ROLES:
        form[role] = {"place": "first_user"} if role == "system" and place != "message" else {}
        for name, text in zip(("before", "after"), lists[role]):
            if text:
                form[role][name] = template.items(text)
        if role != "system":
            named = _named(template, role, assistant_after if role == "user" else user_after)
            if named:
                form[role]["named"] = named
        for side in ("left", "right"):
            written_as = "user" if role == "system" and place == "nowhere" else role
            trim = _trim(template, written_as, side, written_as == "system")
            if trim:
                form[role][f"trim_{side}"] = trim
    if _drops_reasoning(template):
        form["assistant"]["reasoning_end"] = THINK_END
        notes.append(f"the template leaves out earlier replies up to {THINK_END}. Texts of earlier replies are written "
                     "so; a conversation that runs keeps the tokens that the model generated")
    if _refuses(template, ["assistant", "user"]):
        form["user_first"] = True
    form["stop"] = _stop_tokens(template, form, stop)
    _check_form(form)
    return form, notes, _Reference(template, form, place, moved, assistant_before, kept, missing)


def _derive_system(template, begin, user_before, rest, notes):
    """((before, after), place, whether the template moves the text to the last user message). Places: "message",
    "user", and "nowhere" if the template refuses a system message."""
    roles = ["system", "user", "assistant", "user"]
    try:
        gaps, order = _gaps(template, _conversation(roles))
        one, _ = _gaps(template, _conversation(["system", "user"]))
    except Unsupported as problem:
        notes.append(f"the template has no system message ({problem}): the system text and an empty line are put "
                     "before the first user text")
        return ("", _FALLBACK_JOINER), "nowhere", False
    moved = order == [1, 2, 0, 3]
    if moved:
        notes.append("the template puts the system text before the last user text, which moves with every turn. kaiju "
                     "puts it before the first one, so that the prompt of each turn begins with the prompt of the turn "
                     "before")
        after = one[1]
    else:
        if order != [0, 1, 2, 3] or tuple(gaps[2:]) != rest or one[:2] != gaps[:2]:
            raise Unsupported("the template writes the other messages differently if there is a system message")
        if user_before and gaps[1].endswith(user_before):
            return (gaps[0], gaps[1][:-len(user_before)]), "message", False
        after = gaps[1]
    return (_without(one[0], begin + user_before, "", "before the system text"), after), "user", moved


def _stop_tokens(template, form, stop):
    """What ends a reply: `stop`, and control tokens that a reply cannot have because they begin or end a message."""
    found = [template.specials.get(template.variables.get(f"{name}_token")) for name in ("bos", "eos", "pad")]
    for role in ROLES:
        found += form[role].get("before", [])[:1] + form[role].get("after", [])
    return sorted({item for item in found if isinstance(item, int) and item in template.control} | set(stop))


def _check_form(form):
    """What the loader will check too: no text can imitate what separates it from the next one."""
    has_token = lambda items: any(isinstance(item, int) for item in items)
    for first in ROLES:
        for following in ("user", "assistant"):
            if first == "system" and form["system"].get("place"):
                continue
            if not has_token(form[first].get("after", []) + form[following].get("before", [])):
                raise Unsupported(f"no special token separates a {first} text from a following {following} text, so a "
                                  "text could imitate the other role. Use the model without a chat format, on raw text")
    if form["system"].get("place"):
        before, after = form["user"].get("before", []), form["user"].get("after", [])
        if not (before and isinstance(before[0], int) and has_token(after)):
            raise Unsupported("the system text is inside a user message that no special tokens enclose")
    if not form["stop"]:
        raise Unsupported("no token ends a reply: the tokenizer names no end-of-sequence token")


def without_first_spaces(form):
    """The format for a tokenizer that puts a space before each text by itself (SentencePiece's dummy prefix), where the
    template writes that space: each text after a token loses its first space."""
    form = json.loads(json.dumps(form))
    in_user = "place" in form["system"]
    lists = [(form, "begin"), (form, "reply")] + [(form[role], name) for role in ROLES for name in ("before", "after")]
    for owner, name in lists:
        items = owner.get(name, [])
        inside = name == "after" or owner is form["system"] and in_user  # the list continues a text
        if name == "before" and not inside and not (items and isinstance(items[-1], str)):
            raise Unsupported("the tokenizer puts a space before each text, and the template does not")
        for number, item in enumerate(items):
            if isinstance(item, str) and (isinstance(items[number - 1], int) if number else not inside):
                if not item.startswith(" "):
                    raise Unsupported(f"the tokenizer puts a space before the text {item!r}, and the template does not")
                items[number] = item[1:]
        if name in owner:
            owner[name] = [item for item in items if item != ""]
            if not owner[name] and name != "reply":
                del owner[name]
    if form.get("reply") == form["assistant"].get("before", []):
        del form["reply"]
    return form


# -- what a chat format makes of messages: what src/text/chat.cpp does, for the check --


def _strip(text, role):
    left, right = (role.get(f"trim_{side}") for side in ("left", "right"))
    text = text.lstrip() if left == "space" else text.lstrip("\n") if left else text
    text = text.rstrip() if right == "space" else text.rstrip("\n") if right else text
    end = role.get("reasoning_end")
    return text.split(end)[-1].lstrip("\n") if end and end in text else text


def layout(form, messages):
    """The prompt for a reply after `messages`, dicts of role, content and perhaps name: token ids and texts."""
    out = []

    def add(items, name=None):
        for item in items:
            item = name if item is None else item
            if isinstance(item, str) and out and isinstance(out[-1], str):
                out[-1] += item
            elif item != "":
                out.append(item)

    def before(role, name):
        return form[role]["named"] if name and "named" in form[role] else form[role].get("before", [])

    messages = list(messages)
    system = _strip(messages.pop(0)["content"], form["system"]) if messages[0]["role"] == "system" else None
    in_user = system is not None and "place" in form["system"]
    if (in_user or form.get("user_first")) and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": ""})
    if system is None or in_user:
        add(form.get("begin", []))
    if system is not None and not in_user:
        add(form["system"].get("before", []) + [system] + form["system"].get("after", []))
    for number, message in enumerate(messages):
        role, name = message["role"], message.get("name")
        add(before(role, name), name)
        if in_user and number == 0:
            add(form["system"].get("before", []) + [system] + form["system"].get("after", []))
        text = _strip(message["content"], form[role])
        if name and "named" not in form[role]:
            text = f"{name}: {text}" if text else f"{name}:"
        add([text] + form[role].get("after", []))
    add(form.get("reply", form["assistant"].get("before", [])))
    return out


class _Reference:
    """What the template makes of messages, where it must agree with the chat format."""

    def __init__(self, template, form, place, moved, earlier, kept, missing):
        self.template, self.form, self.place, self.moved = template, form, place, moved
        self._missing = missing  # what begins a reply, where the template does not say
        self._earlier, self._kept = earlier, kept  # before an earlier reply: by the template, and by kaiju
        own = {item for role in ROLES for name in ("before", "after") for item in form[role].get(name, [])}
        names = [special for special in template.specials if special not in COMMANDS]
        self.names = sorted(names, key=lambda special: template.specials[special] not in own)[:30] or ["<|end|>"]
        self.empty = {role for role in ("user", "assistant") if self._takes_empty(role)}

    def _takes_empty(self, role):
        messages = _conversation(["user", "assistant", "user"])
        for message in messages:
            message["content"] = "" if message["role"] == role else message["content"]
        try:
            return bool(self.template.render(messages))
        except Unsupported:
            return False

    def items(self, messages):
        """The prompt as token ids and texts, by jinja2. The messages are changed where kaiju differs on purpose: see
        derive()'s notes."""
        form, template = self.form, self.template
        messages = [dict(message) for message in messages]
        begins = messages[0]["role"] == "system"
        if (form.get("user_first") or begins and self.place != "message") and messages[int(begins)]["role"] != "user":
            messages.insert(int(begins), {"role": "user", "content": ""})
        for message in messages:
            if message.get("name") and "named" not in form[message["role"]]:
                text = _strip(message["content"], form[message["role"]])
                message["content"] = f"{message['name']}: {text}" if text else f"{message['name']}:"
                del message["name"]
            if "name" in message:
                message["name"] = template.hide(message["name"])
            keep = form[message["role"]].get("reasoning_end")
            message["content"] = template.hide(message["content"], keep)
        if begins and (self.place == "nowhere" or self.moved and len(messages) > 2):
            # One string, of which the template trims no inner end, so the texts are trimmed and the joiner hidden.
            system, user = (_strip(message["content"], form[message["role"]]) for message in messages[:2])
            joiner = "".join(form["system"].get("after", []))
            messages[1]["content"] = system + _hidden(joiner) + user
            messages.pop(0)
        rendered = template.render(messages) + self._missing
        if self._kept != self._earlier:
            end = len(rendered) - len(self._kept)
            rendered = rendered[:end].replace(self._earlier, self._kept) + rendered[end:]
        return [_unhidden(item) if isinstance(item, str) else item for item in template.items(rendered)]


# -- random conversations --

_PIECES = ["a", "I", "the", "hello", "user", "assistant", "system", "model", "Don't", "e\u0301", "\u00e9", "\u00df",
           "\u4f60\u597d", "\u0645\u0631\u062d\u0628\u0627", "\U0001f600", "\U0001f469\u200d\U0001f680", "0", "42",
           "1234567", ".", ",", "?", "!", ":", "\"", "'", "\\", "/", "<", ">", "|", "[", "]", "{", "}",
           "{{ bos_token }}", "{% raw %}", "&amp;", "<|", "|>", "</", "[INST", " ", "  ", "   ", "\n", "\n\n", "\r\n",
           "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00", "\x1b"]


def random_text(draw, names):
    """A text of up to 12 pieces: words, white space, Unicode, and `names` of control tokens."""
    text = ""
    for _ in range(draw.choice((0, 1, 2, 3, 5, 8, 12))):
        text += draw.choice(names) if draw.random() < 0.15 else draw.choice(_PIECES)
        text += " " * (draw.random() < 0.4)
    return text


def random_conversation(draw, reference):
    """Messages that end with the user's: perhaps a system message, perhaps a greeting, 1 to 6 user messages."""
    form = reference.form
    text = lambda: random_text(draw, reference.names)
    messages = []
    if draw.random() < 0.5:
        system = text()
        messages.append({"role": "system", "content": system if _strip(system, form["system"]) else "Be brief."})
    if draw.random() < 0.15:
        messages.append({"role": "assistant", "content": text()})
    for _ in range(draw.randint(0, 5)):
        messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    messages.append({"role": "user", "content": text()})
    for message in messages:
        if message["role"] != "system" and draw.random() < 0.1:
            message["name"] = draw.choice(("Ann", "Ann Lee", "\u00c9lise", "<|user|>"))
        if message["role"] == "assistant" and draw.random() < 0.1:
            message["content"] = f"<think>\n{text()}\n{THINK_END}\n\n{message['content']}"
        if message["role"] != "system" and message["role"] not in reference.empty and not message["content"].strip():
            message["content"] = "Hm."
    return messages


def check(reference, conversations=1000, seed=1):
    """Compares random conversations with the template; Unsupported for the first that differs."""
    draw = random.Random(seed)
    for number in range(conversations):
        messages = random_conversation(draw, reference)
        wanted, found = reference.items(messages), layout(reference.form, messages)
        if wanted != found:
            raise Unsupported(f"the chat format does not give what the template gives for conversation {number} of "
                              f"seed {seed}: {json.dumps(messages)}\n  template:    {wanted}\n  chat format: {found}")


# -- models --


def _read_json(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _ids(value):
    return [value] if isinstance(value, int) else list(value or [])


def from_gguf(path):
    """(template, specials, control ids, variables, stop ids, whether the tokenizer puts a space before texts)"""
    with open(path, "rb") as file:
        data = tokenizers_of_models.gguf_metadata(file)
    source = data.get("tokenizer.chat_template")
    if not source:
        raise Unsupported("the file has no tokenizer.chat_template: use the model without a chat format, on raw text")
    texts, kinds = data.get("tokenizer.ggml.tokens", []), data.get("tokenizer.ggml.token_type", [])
    specials = {text: number for number, (text, kind) in enumerate(zip(texts, kinds))
                if kind in (3, 4) and text.strip()}
    control = [number for number, kind in enumerate(kinds) if kind == 3]
    at = lambda name: data.get(f"tokenizer.ggml.{name}_token_id")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    variables = {variable: texts[at(name)] for variable, name in names.items() if at(name) is not None}
    stop = [at(name) for name in ("eos", "eot", "eom") if at(name) is not None]
    spaced = data.get("tokenizer.ggml.model") == "llama" and data.get("tokenizer.ggml.add_space_prefix", True)
    return source, specials, control, variables, stop, spaced


def from_folder(folder):
    """The same of a Hugging Face folder."""
    settings, stored = _read_json(folder, "tokenizer_config.json"), _read_json(folder, "tokenizer.json")
    source = settings.get("chat_template")
    if os.path.exists(os.path.join(folder, "chat_template.jinja")):
        with open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8") as file:
            source = file.read()
    if isinstance(source, list):
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if not source:
        raise Unsupported("the folder has no chat_template: use the model without a chat format, on raw text")
    added = stored.get("added_tokens") or [dict(entry, id=int(number)) for number, entry in
                                           settings.get("added_tokens_decoder", {}).items()]
    specials = {entry["content"]: entry["id"] for entry in added if entry["content"].strip()}
    control = [entry["id"] for entry in added if entry.get("special")]
    variables = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(name)
        if value is not None:
            variables[name] = value["content"] if isinstance(value, dict) else value
    stop = _ids(_read_json(folder, "generation_config.json").get("eos_token_id"))
    stop += _ids(_read_json(folder, "config.json").get("eos_token_id"))
    if variables.get("eos_token") in specials:
        stop.append(specials[variables["eos_token"]])
    pre = stored.get("pre_tokenizer") or {}
    steps = [pre] + pre.get("pretokenizers", [])
    spaced = any(step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first" for step in steps)
    return source, specials, control, variables, stop, spaced


def import_format(path, variables=None, date=datetime.date(2025, 1, 1), conversations=1000, seed=1):
    """(chat format, notes) of a GGUF file or a Hugging Face folder; Unsupported with the reason."""
    source, specials, control, own, stop, spaced = (from_folder if os.path.isdir(path) else from_gguf)(path)
    template = Template(source, specials, control, {**own, **(variables or {})}, date)
    form, notes, reference = derive(template, stop)
    check(reference, conversations, seed)
    if spaced:
        form = without_first_spaces(form)
    return form, notes


def _limit_resources(seconds):
    """A template is a stranger's program: it may take so long, and 4 GB."""
    import resource
    import signal

    def too_long(*_):
        raise Unsupported("the template takes too long")

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="Hugging Face folder or GGUF file")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--date", default="2025-01-01", type=datetime.date.fromisoformat,
                        help="the day that a template writes into its system message; default: 2025-01-01")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON",
                        help="a variable of the template, such as enable_thinking=false")
    parser.add_argument("--check", type=int, default=1000, help="random conversations to compare; default: 1000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60, help="how long it may take; default: 60")
    arguments = parser.parse_args()
    variables = {}
    for setting in arguments.set:
        name, sign, value = setting.partition("=")
        try:
            variables[name] = json.loads(value)
        except ValueError:
            parser.error(f"--set {setting}: the value must be JSON, such as true, 5 or '\"text\"'")
    try:
        _limit_resources(arguments.seconds)
        form, notes = import_format(arguments.source, variables, arguments.date, arguments.check, arguments.seed)
    except (Unsupported, tokenizers_of_models.Unsupported) as problem:
        sys.exit(f"chat_format.py: {arguments.source}: {problem}")
    except MemoryError:
        sys.exit(f"chat_format.py: {arguments.source}: the template takes too much memory")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"chat_format.py: {arguments.source}: {type(problem).__name__}: {problem}")
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(form, file, ensure_ascii=False)
    for note in notes:
        print(f"note: {note}")
    print(f"{arguments.check} random conversations: no difference from the template")


if __name__ == "__main__":
    main()
