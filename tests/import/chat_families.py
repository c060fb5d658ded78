"""The chat templates of templates/, each with a small tokenizer: one of tests/text/byte_bpe with the family's special
tokens added. Needs jinja2; tokens() needs tokenizers."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORED = ROOT / "tests/text/byte_bpe"
VECTORS = ROOT / "tests/text/chat_formats"
sys.path.insert(0, str(ROOT / "examples/import"))
import chat_format  # noqa: E402

_LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
_MISTRAL = ["<s>", "</s>", "[INST]", "[/INST]"]
_BASE = ["<|end|>", "<|im_start|>", "<|im_end|>"]  # control tokens of every stored tokenizer


class Family:
    def __init__(self, name, tokenizer, control=(), visible=(), bos=None, eos="<|im_end|>", template=None, **variables):
        self.name, self.tokenizer, self.control, self.visible = name, tokenizer, list(control), list(visible)
        stored = json.loads((STORED / f"{tokenizer}.kaiju.json").read_text())
        at = lambda text: stored["tokens"].index(text)
        self.specials = {text: at(text) for text in _BASE + ["<think>"]}
        controls = [self.specials[text] for text in _BASE]
        for number, text in enumerate(self.control + self.visible):
            self.specials[text] = len(stored["tokens"]) + number
            controls += [self.specials[text]] * (text in self.control)
        source = (ROOT / f"tests/import/templates/{template or name}.jinja").read_text()
        variables = {"eos_token": eos, **({"bos_token": bos} if bos else {}), **variables}
        self.template = chat_format.Template(source, self.specials, controls, variables)
        self.stop = [self.specials[eos]]
        self._encoder = None

    def derive(self):
        return chat_format.derive(self.template, self.stop)

    def kaiju_tokenizer(self):
        """The tokenizer as a checkpoint stores it."""
        stored = json.loads((STORED / f"{self.tokenizer}.kaiju.json").read_text())
        for text in self.control + self.visible:
            stored["control" if text in self.control else "visible"].append(len(stored["tokens"]))
            stored["tokens"].append(text)
        return stored

    def tokens(self, items):
        """The tokens of token ids and texts, by the package tokenizers: no text becomes a special token."""
        import tokenizers
        if self._encoder is None:
            source = json.loads((STORED / f"{self.tokenizer}.tokenizer.json").read_text())
            for entry in source["added_tokens"]:
                entry["special"] |= bool(entry["content"].strip())  # <think> in a text is text
            self._encoder = tokenizers.Tokenizer.from_str(json.dumps(source))
            self._encoder.add_special_tokens([tokenizers.AddedToken(text, normalized=False)
                                              for text in self.control + self.visible])
            assert all(self._encoder.token_to_id(text) == number for text, number in self.specials.items())
            self._encoder.encode_special_tokens = True
        found = []
        for item in items:
            found += [item] if isinstance(item, int) else self._encoder.encode(item, add_special_tokens=False).ids
        return found


def families():
    think = ["</think>"]
    return [
        Family("chatml", "gpt2"),
        Family("qwen2.5", "qwen"),
        Family("qwen3", "qwen", visible=think),
        Family("qwen3_no_thinking", "qwen", visible=think, template="qwen3", enable_thinking=False),
        Family("smollm2", "smollm"),
        Family("smollm3", "smollm", visible=think),
        Family("smollm3_no_thinking", "smollm", visible=think, template="smollm3", enable_thinking=False),
        Family("llama3", "llama3", _LLAMA3, bos="<|begin_of_text|>", eos="<|end_of_text|>"),
        Family("llama3.1", "llama3", _LLAMA3, bos="<|begin_of_text|>", eos="<|end_of_text|>"),
        Family("mistral_v3", "tekken", _MISTRAL, bos="<s>", eos="</s>"),
        Family("mistral_tekken", "tekken", _MISTRAL, bos="<s>", eos="</s>"),
        Family("mistral_small", "tekken", [*_MISTRAL, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"], bos="<s>", eos="</s>"),
        Family("gemma3", "llama3", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], bos="<bos>", eos="<eos>"),
    ]
