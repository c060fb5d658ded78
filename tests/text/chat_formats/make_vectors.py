"""Makes the vectors of this folder with jinja2 and tokenizers (3.1.6 and 0.23.3 made the stored ones):

    python3 tests/text/chat_formats/make_vectors.py

NAME.json has the chat format that examples/import/chat_format.py derives from a template of tests/import/templates, and
conversations with the tokens of their prompts: jinja2 renders the template, and tokenizers encodes the texts between
control tokens. The tokenizer is a stored one of tests/text/byte_bpe with `control` and `visible` tokens added.
"""

import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "import"))
import chat_families  # noqa: E402
import chat_format  # noqa: E402

for family in chat_families.families():
    form, _, reference = family.derive()
    draw = random.Random(family.name)
    vectors = []
    while len(vectors) < 12:
        messages = chat_format.random_conversation(draw, reference)
        tokens = family.tokens(reference.items(messages))
        if len(tokens) < 400:
            vectors.append({"messages": messages, "tokens": tokens})
    write = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    head = {"tokenizer": family.tokenizer, "control": family.control, "visible": family.visible, "chat_format": form}
    text = write(head)[:-1] + ',"conversations":[\n' + ",\n".join(map(write, vectors)) + "\n]}\n"
    (HERE / f"{family.name}.json").write_text(text)
