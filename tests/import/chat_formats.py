"""Chat formats derived from templates: 1,000 random conversations of each family against jinja2, and what is refused.

    chat_formats.py ROOT KAIJU_ENCODE [CONVERSATIONS]

Exits with 77, which CTest counts as skipped, without jinja2:
    python3 -m venv build/tools && build/tools/bin/pip install --no-deps -r tests/import/requirements.txt

With the package tokenizers, kaiju-encode's tokens are compared with those of jinja2 and tokenizers. Without it, control
tokens and the texts between them are compared.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

root, encode = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
conversations = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
sys.dont_write_bytecode = True

try:
    import jinja2  # noqa: F401
except ImportError:
    tools = root / "build/tools/bin/python3"
    if tools.exists() and os.environ.get("KAIJU_TOOLS") != "tried":
        os.execve(tools, [str(tools), *sys.argv], {**os.environ, "KAIJU_TOOLS": "tried"})
    print("skipped: jinja2 is not installed (tests/import/requirements.txt)")
    sys.exit(77)

import chat_families  # noqa: E402
import chat_format  # noqa: E402
import tokenizer as converter  # noqa: E402

try:
    import tokenizers  # noqa: F401
    has_tokenizers = True
except ImportError:
    has_tokenizers = False
    print("going on without: tokens are not compared, which wants the package tokenizers")


def promise(holds, name):
    if not holds:
        sys.exit(f"broken: {name}")


def tokens_of_kaiju(family, form, prompts):
    """The tokens of each prompt by kaiju-encode, as lines of text."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, chat = pathlib.Path(folder, "tokenizer.json"), pathlib.Path(folder, "chat_format.json")
        tokenizer.write_text(json.dumps(family.kaiju_tokenizer()))
        chat.write_text(json.dumps(form))
        texts = [json.dumps(messages).encode() for messages in prompts]
        data = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
        command = [encode, str(tokenizer), "--chat", str(chat)]
        done = subprocess.run(command, input=data, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def check(family):
    form, notes, reference = family.derive()
    stored = json.loads((chat_families.VECTORS / f"{family.name}.json").read_text())
    promise(form == stored["chat_format"], f"{family.name} has the stored chat format, not {json.dumps(form)}")
    if not has_tokenizers:
        chat_format.check(reference, conversations)
    else:
        draw = random.Random(1)
        prompts = [chat_format.random_conversation(draw, reference) for _ in range(conversations)]
        found = tokens_of_kaiju(family, form, prompts)
        promise(len(found) == len(prompts), f"{family.name}: kaiju-encode answers every prompt, not {len(found)}")
        for messages, line in zip(prompts, found):
            wanted = " ".join(map(str, family.tokens(reference.items(messages))))
            promise(line == wanted, f"{family.name}, {json.dumps(messages)}:\n  jinja2 {wanted}\n  kaiju  {line}")
    return notes


notes = {}
for family in chat_families.families():
    notes[family.name] = " ".join(check(family))
    print(f"{family.name}: {conversations} conversations, no difference")

promise("before the last user text" in notes["mistral_tekken"], "a note says that the system text moves")
promise("leaves out of earlier replies" in notes["qwen3_no_thinking"], "a note says that a reasoning block stays")
promise("up to </think>" in notes["qwen3"], "a note says that reasoning is left out of earlier replies")
for name in ("chatml", "llama3", "llama3.1", "qwen2.5", "smollm2", "smollm3", "gemma3", "mistral_small"):
    promise(not notes[name], f"{name} needs no note, not {notes[name]!r}")

# -- what is refused, and with which words --
SPECIALS = {"<s>": 1, "</s>": 2, "<|u|>": 3, "<|a|>": 4, "<|sys|>": 5, "<think>": 6, "</think>": 7}
LOOP = "{{ bos_token }}{% for m in messages %}%s{% endfor %}{{ '<|a|>' if add_generation_prompt }}"
GOOD = "{{ {'system': '<|sys|>', 'user': '<|u|>', 'assistant': '<|a|>'}[m.role] + m.content + '</s>' }}"


def derive(source, specials=None, **variables):
    template = chat_format.Template(source, specials or SPECIALS, variables={"bos_token": "<s>", **variables})
    form, found, reference = chat_format.derive(template, [2])
    chat_format.check(reference, 200)
    return form, found


def template(body):
    return LOOP.replace("%s", body)


def refused(name, what, source, **arguments):
    try:
        derive(source, **arguments)
    except chat_format.Unsupported as problem:
        promise(what in str(problem), f"the refusal of {name} says {what!r}, not {problem}")
    else:
        sys.exit(f"broken: {name} is refused")


derive(template(GOOD))
refused("a template that is no Jinja", "not Jinja", "{% for %}")
refused("a template that always raises", "the template says: no", "{{ raise_exception('no') }}")
refused("a template that reads what is not there", "'nothing' is undefined", "{{ nothing.name }}")
refused("a template that adds numbers to texts", "TypeError", template("{{ m.content + 1 }}"))
refused("a template that calls what it must not", "template says", "{{ ''.__class__.__mro__[1].__subclasses__() }}")
refused("a template of huge texts", "operator *", "{{ 'x' * 999999999 }}")
refused("a template that forgets texts", "leaves out the text of the user message 0", template("<|u|></s>"))
refused("a template that repeats texts", "repeats 2 times", template(GOOD + "{{ m.content if m.role == 'user' }}"))
refused("a template of upper case", "leaves out the text", template(GOOD.replace("m.content", "m.content | upper")))
refused("a template without special tokens", "no special token separates",
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
        "{{ 'assistant: ' if add_generation_prompt }}")
refused("a template whose users no token encloses", "no special token separates",
        template(GOOD.replace("'</s>'", "('</s>' if m.role == 'system' else '\n')").replace("'<|a|>'", "'bot:'"))
        .replace("'<|a|>'", "'bot:'"))
refused("a template that numbers its turns", "", template("{{ loop.index0 ~ '<|u|>' }}" + GOOD))
refused("a template that counts messages", "differently",
        template(GOOD).replace("{{ bos_token }}", "{{ bos_token ~ messages | length }}"))
refused("a template that removes tabs alone", "removes a tab",
        template(GOOD.replace("m.content", "m.content.strip('\t')")))
refused("a template that indents texts", "changes a system text that begins with a newline",
        template(GOOD.replace("m.content", "m.content.replace('\n', '\n  ')")))
refused("a template that obeys words in texts", "conversation",
        template(GOOD.replace("m.content", "m.content.replace('hello', 'goodbye')")))
refused("a template that keeps the newlines after reasoning", "keeps the newlines",
        template(GOOD.replace("m.content", "m.content.split('</think>')[-1]")))
refused("a template that repeats a speaker's name", "repeats the name",
        template(GOOD.replace("m.content", "((m.name + m.name + ':') if m.name else '') + m.content")))
refused("a tokenizer without special tokens", "no special token separates", template(GOOD), specials={"@@": 9})
refused("a template that writes other messages otherwise beside a system message", "differently if there is a system",
        template(GOOD.replace("'</s>'", "('</s></s>' if messages[0].role == 'system' != m.role else '</s>')")))

# -- what is not refused --
form, found = derive(template(GOOD.replace("'system': '<|sys|>', ", "")))
promise(form["system"]["place"] == "first_user" and "no system message" in found[0],
        "a template that fails for system messages has the system text in the first user text, said aloud")
form, _ = derive(template("{% generation %}" + GOOD + "{% endgeneration %}"))
promise(form["user"]["before"] == [3], "{% generation %} is known")
form, _ = derive(template(GOOD.replace("m.content", "(m.name + ': ' if m.name else '') + m.content")))
promise(form["user"]["named"] == [3, None, ": "], "a template that knows names has them in `named`")
form, found = derive(template(GOOD).replace("{{ '<|a|>' if add_generation_prompt }}", ""))
promise("reply" not in form and "does not say what begins a reply" in found[0], "a reply begins as earlier ones do")
form, _ = derive(template(GOOD).replace("'<|a|>' if", "'<|a|><think>\n' if"))
promise(form["reply"] == [4, 6, "\n"], "reasoning that a reply begins with is not part of earlier replies")
form, _ = derive(template(GOOD.replace("m.content", "m.content.strip()")))
promise(form["user"]["trim_left"] == "space", "texts are trimmed as the template trims them")

in_user = {"place": "first_user", "after": ["\n"]}
spaced = chat_format.without_first_spaces({"begin": [1, " x"], "system": in_user, "stop": [2], "reply": [],
                                           "user": {"before": [3, " "], "after": [4]},
                                           "assistant": {"before": [" "], "after": [" z", 2]}})
promise(spaced == {"begin": [1, "x"], "system": in_user, "stop": [2],
                   "user": {"before": [3], "after": [4]}, "assistant": {"after": [" z", 2]}},
        f"a space that the tokenizer adds is not written twice, but {spaced}")
try:
    chat_format.without_first_spaces({"system": {"before": [1]}, "user": {"before": [3]}, "assistant": {}, "stop": [2]})
    sys.exit("broken: a tokenizer that adds a space where the template has none is refused")
except chat_format.Unsupported:
    pass

# -- folders and the command line --
with tempfile.TemporaryDirectory() as folder:
    qwen = chat_families.families()[1]
    added = [{"id": number, "content": text, "special": text != "<think>"} for text, number in qwen.specials.items()]
    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(
        {"chat_template": qwen.template.source, "eos_token": {"content": "<|im_end|>"}}))
    pathlib.Path(folder, "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    run = lambda *more: subprocess.run([sys.executable, root / "examples/import/chat_format.py", folder, "--out",
                                        folder + "/out.json", "--check", "50", *more], capture_output=True, text=True)
    done = run()
    promise(done.returncode == 0 and "50 random conversations: no" in done.stdout, f"a folder: {done.stderr}")
    made = json.loads(pathlib.Path(folder, "out.json").read_text())
    promise(made["stop"] == [0, 1, 2], "stop tokens of a folder's files")
    promise(made["user"] == {"before": [1, "user\n"], "after": [2, "\n"]}, "a folder's chat format")
    os.remove(folder + "/out.json")
    pathlib.Path(folder, "chat_template.jinja").write_text("{{ messages }}")
    done = run()
    promise(done.returncode == 1 and "chat_format.py: " in done.stderr and not os.path.exists(folder + "/out.json"),
            "what is refused writes no file")
    pathlib.Path(folder, "chat_template.jinja").write_text("{% for i in range(99999) %}{% for j in range(99999) %}"
                                                           "{% endfor %}{% endfor %}")
    done = run("--seconds", "1")
    promise(done.returncode == 1 and "takes too long" in done.stderr, f"an endless template is stopped: {done.stderr}")
    promise(run("--set", "x=nonsense").returncode == 2, "a variable that is no JSON is refused")
print("chat formats: every promise holds")
