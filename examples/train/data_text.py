"""The redistributable corpora: unpacking, normalising, and turning them into chats and prose.

A document is ("text", text) or ("chat", card or None, [(role, text, weight class)]), role "user" or "char".
"""
import json
import random
import re
import tarfile
import zlib

import data_quiz
import persona_values as V

# Passes over each source. A dialogue pass takes one side as the character; even passes take B, odd ones A. At most four.
PASSES = {"persona_chat": 4, "personality_qa": 3, "roleplay_single_turn": 2, "self_dialogue": 2, "topical_chat": 2, "coffee_orders": 1,
          "small_talk": 2, "fables": 2, "fairy_tales": 2, "african_storybook": 2, "childrens_novels": 2, "tale_quiz": 4}
# The questions on fairy tales come with the passage that answers them (data_quiz.py): without it they would teach guessing.
PROSE = ("fables", "fairy_tales", "african_storybook", "childrens_novels")

QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2026": "...", "\u00a0": " ", "\u2013": "-", "\u2014": " - ",
                        "\u200b": "", "\ufeff": "", "\r": "", "\t": " ", "\u00ad": "", "`": "'"})
MACHINE = re.compile(r"\b(AI|A\.I\.|artificial|chatbot|bot|bots|robots?|computer|processor|software|hardware|program\w*|algorithm\w*|digital|digitized|data|"
                     r"silicon|server|code|Siri|Cortana|Alexa|Google|Microsoft|assistant|electronic|internet|password|driver|printer|CPU|binary|virtual|tech|"
                     r"android|human being|humans?|machine|transistors?|function|python|browser|webcam|wi-?fi|circuits?)\b", re.I)
NAME_SLOT = re.compile(r"[\(\[\{<]\s*(?:your |my )?(?:user|name|person)\s*([12])?(?:'s name)?\s*[\)\]\}>]", re.I)


def normal(text):
    text = text.translate(QUOTES)
    text = re.sub(r"[ ]+\n", "\n", re.sub(r"  +", " ", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def prose(text):
    """Hard-wrapped lines become paragraphs; emphasis marks go."""
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", normal(text).replace("--", " - "))
    text = re.sub(r"\b_|_\b", "", text)
    return re.sub(r"  +", " ", text)


def is_validation(key):
    return zlib.crc32(b"validation:" + key.encode()) % 97 == 0


def read(tar_path):
    """{source: [row]} of every JSON-lines file in the archive, and tale_quiz."""
    rows = {}
    with tarfile.open(tar_path) as tar:
        for member in tar:
            name = member.name.rsplit("/", 1)[-1]
            if name.endswith(".jsonl"):
                lines = tar.extractfile(member).read().decode("utf-8").split("\n")
                rows[name[:-6]] = [json.loads(line) for line in lines if line.strip()]
    rows["tale_quiz"] = [{"passage": passage, "turns": [turn for q, a in pairs for turn in (("user", q), ("bot", a))]} for passage, pairs in data_quiz.quizzes(
        [prose(row["text"]) for row in rows["fairy_tales"]], [(row["turns"][0][1], row["turns"][1][1]) for row in rows["fairy_tale_questions"]])]
    return rows


def _name(r):
    return V.given(r, 0)


def _minimal_card(r, name, what):
    return name + "\n" + V.one(r, ("{n} is chatting with a friend.", "{n} likes to talk about {w}.", "{n} is talking about {w}.",
                                   "A chat about {w} with {n}.", "You are {n}, talking about {w}.", "{n} enjoys a chat about {w}.")).format(n=name, w=what)


def _merge(turns):
    """Neighbouring turns of one speaker become one; empty ones go."""
    out = []
    for who, text in turns:
        text = normal(text)
        if not text:
            continue
        if out and out[-1][0] == who:
            out[-1] = (who, out[-1][1] + " " + text)
        else:
            out.append((who, text))
    return out


def _chat(turns, me, card):
    """Seen from speaker `me`, who becomes the character; the chat ends with a line of the character."""
    chat = [("char", t, 3) if who == me else ("user", t, 2) for who, t in turns]
    while chat and chat[-1][0] == "user":
        chat.pop()
    return ("chat", card, chat) if chat else None


def _dialogue(r, source, row, passed):
    turns = _merge(row["turns"])
    if len(turns) < 2:
        return None
    speakers = list(dict.fromkeys(who for who, _ in turns))
    if len(speakers) != 2:
        return None
    name, card = _name(r), None
    if source == "persona_chat":
        me = speakers[1 - passed % 2]
        names = {speakers[0]: _name(r), speakers[1]: _name(r)}
        name = names[me]
        lines = [normal(s).rstrip(".") + "." for s in row["persona1" if me == "User1" else "persona2"]]
        lines = [s[0].upper() + s[1:] for s in lines if s]
        r_ = r()
        lines.sort(key=lambda s: r())
        card = name + "\n" + ("I am " + name + ". " if r_ < 0.4 else "") + (" ".join(lines) if r_ < 0.8 else "\n".join("- " + s for s in lines))
        turns = [(who, NAME_SLOT.sub(lambda m: names.get("User" + (m.group(1) or ""), names[who]), t)) for who, t in turns]
        if any("(link)" in t.lower() or "[" in t for _, t in turns):
            return None
    elif source == "tale_quiz":
        card = name + "\n" + row["passage"]
        return ("chat", card, [("user", t, 2) if who == "user" else ("char", t[0].upper() + t[1:] + ("" if t[-1] in ".!?\"" else "."), 4) for who, t in turns])
    elif source == "personality_qa":
        me = "bot"
        if MACHINE.search(turns[0][1] + " " + turns[-1][1]):
            return None
        kind = row["persona"].replace("the ", "")
        card = name + "\n" + V.one(r, {"comic": ("{n} is a comic and makes fun of everything.", "{n} jokes about everything.", "{n} is witty and never serious."),
                                       "friend": ("{n} is warm and friendly.", "{n} talks like a good friend.", "{n} is a kind friend."),
                                       "professional": ("{n} is polite and professional.", "{n} is reserved and correct.", "{n} speaks in a formal, brief way.")}[kind]).format(n=name)
    elif source == "small_talk":
        me = "bot"
        if any(MACHINE.search(t) or "|" in t or len(t) > 300 for _, t in turns):
            return None
        card = _minimal_card(r, name, "this and that") if r() < 0.5 else None
    elif source == "coffee_orders":
        me = "bot"
        card = name + "\n" + V.one(r, ("{n} takes orders at a coffee bar.", "{n} works at a coffee shop.", "{n} sells coffee.")).format(n=name) if r() < 0.7 else None
    elif source == "roleplay_single_turn":
        me = "bot"
        if len(turns[-1][1]) > 2500:
            return None
        card = _minimal_card(r, name, "anything, in any role") if r() < 0.3 else None
    else:
        me = speakers[1 - passed % 2]
        card = _minimal_card(r, name, V.one(r, ("films", "music", "sport", "life", "all sorts of things", "hobbies", "the news"))) if r() < 0.5 else None
    return _chat(turns, me, card)


PIECE = 13000  # characters; about 3,000 tokens, so a piece and its neighbours fit a sequence of 4,096


def _pieces(text, passed):
    """Cuts a long text at paragraphs; every pass cuts elsewhere."""
    if len(text) <= PIECE:
        return [text]
    out, part, size = [], [], PIECE // (passed + 1)
    for paragraph in text.split("\n\n"):
        for i in range(0, len(paragraph), PIECE):
            part.append(paragraph[i:i + PIECE])
            size -= len(part[-1]) + 2
            if size <= 0:
                out.append("\n\n".join(part))
                part, size = [], PIECE - 3000
    if part:
        out.append("\n\n".join(part))
    return [p for p in out if len(p) <= 2 * PIECE]


def documents(rows, validation=False, shard=0, shards=1):
    """Every pass of every source as (source, document), in a fixed order; of a shard, its share. Two passes over one row land in
    different shards, so that a sequence never holds a text and its repeat."""
    for source, passes in PASSES.items():
        for passed in range(1 if validation else passes):
            for n, row in enumerate(rows[source]):
                if (n + 17 * passed) % shards != shard:
                    continue
                key = source + (row.get("title") or str(n))
                if is_validation(key) != validation:
                    continue
                if "text" in row:
                    for piece in _pieces(prose(row["text"]), passed):
                        yield source, ("text", piece)
                else:
                    r = random.Random(n * 31 + passed * 7 + zlib.crc32(source.encode())).random
                    doc = _dialogue(r, source, row, passed)
                    if doc:
                        yield source, doc


def taught(paths):
    """A teacher's talk (distill.py) as documents. It counts a little: it teaches language, not what is so."""
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                found.append(("chat", row.get("card"), [(role, text, 2) for role, text in row["turns"]]))
    return found


def prose_texts(rows, validation):
    """Texts of the prose sources that are, or are not, for validation."""
    return [prose(row["text"]) for source in PROSE for n, row in enumerate(rows[source]) if is_validation(source + (row.get("title") or str(n))) == validation]


def filler_talks(rows):
    """Dialogues of the training side as flat lists of turns, for the far samples of the persona generator."""
    talks = []
    for source in ("self_dialogue", "topical_chat"):
        for n, row in enumerate(rows[source]):
            turns = _merge(row["turns"])
            if not is_validation(source + str(n)) and len(turns) >= 6 and all(len(t) < 260 for _, t in turns):
                talks.append([t for _, t in turns])
    return talks


def word_bank(rows):
    """Plain words of the corpora that are not kept for the held-out set."""
    counts = {}
    word = re.compile(r"(?<=[a-z,] )[a-z]{4,10}\b")
    for source in ("fables", "fairy_tales", "self_dialogue", "topical_chat"):
        for row in rows[source][::3]:
            for w in word.findall(row["text"] if "text" in row else " ".join(t for _, t in row["turns"])):
                counts[w] = counts.get(w, 0) + 1
    return sorted(w for w, n in counts.items() if n >= 8 and not V.held(w))
