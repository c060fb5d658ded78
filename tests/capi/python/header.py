"""The header and the package say the same: every function, with what it takes; every struct, field by field; every
constant and option. And each has a Python name, in the tables below.

    header.py LIBKAIJU MODEL KAIJU_MAKE"""

import ctypes
import inspect
import os
import re

from support import HEADER, PACKAGE, Test, kaiju, main
from kaiju import _c

# The Python name of each function; None: what it is for happens by itself.
NAMES = {
    "version": "version_number", "version_string": "version", "build_info": "build_info",
    "status_name": "status_name", "error_status": "Error.status", "error_message": "Error", "error_destroy": None,
    "runtime_create": "Runtime", "runtime_destroy": "Runtime.close",
    "runtime_device_count": "Runtime.device_count", "runtime_device_info": "Runtime.device_info",
    "options_create": "Options", "options_destroy": "Options.close", "options_copy": "Options.copy",
    "options_clear": "Options.clear", "options_set_int": "Options.set", "options_set_float": "Options.set",
    "options_set_string": "Options.set", "options_set_logit_bias": "Options.set", "options_set_clock": "Options.set",
    "options_set_host_threads": "Options.set",
    "option_find": "option_find", "option_describe": "option_describe",
    "options_add_sampler": "Options.set", "options_clear_samplers": "Options.clear",
    "sampler_describe": "sampler_describe",
    "model_load": "Model", "model_destroy": "Model.close", "model_number": "Model.number", "model_text": "Model.text",
    "model_stop_tokens": "Model.stop_tokens", "model_label": "Model.label", "tokenize": "Model.tokenize",
    "detokenize": "Model.detokenize", "token_text": "Model.token_bytes", "chat_format": "Model.chat_format",
    "chat_format_volatile": "Model.chat_format_volatile",
    "chat_turns_to_drop": "chat_turns_to_drop",
    "engine_create": "Engine", "engine_destroy": "Engine.close", "engine_submit": "Session.submit",
    "engine_guide": "Engine.guide", "engine_set_limit": "Engine.set_limit", "options_set_logits_hook": "Options.set",
    "engine_set_share": "Engine.set_share", "engine_share_usage": "Engine.share_usage",
    "engine_cancel": "Engine.cancel", "engine_suspend": "Engine.suspend", "engine_resume": "Engine.resume",
    "engine_now": "Engine.now", "engine_step": "Engine.step", "engine_poll": "Engine.poll",
    "engine_poll_cache": "Engine.poll_cache", "engine_cached_blocks": "Engine.cached_blocks",
    "engine_pending": "Engine.pending", "engine_wait": "Engine.wait", "engine_wake": "Engine.wake",
    "engine_metrics": "Engine.metrics", "engine_describe": "Engine.describe",
    "engine_record": "Event.record", "engine_replay": "Engine.replay", "engine_scrub": "Engine.scrub",
    "engine_set_scales": "Engine.set_scales", "engine_calibrate": "Engine.calibrate",
    "calibration_create": "Calibration", "calibration_destroy": "Calibration.close",
    "calibration_read": "Calibration.read", "calibration_saturation": "Calibration.saturation",
    "calibration_save": "Calibration.save", "calibration_thaw": "Calibration.thaw",
    "calibration_reset": "Calibration.reset",
    "engine_set_head": "Engine.set_head",
    "engine_update_weights": "Engine.update_weights", "record_describe": "record_describe", "record_tokens": "record_tokens",
    "session_prefetch": "Session.prefetch", "session_create": "Session", "session_destroy": "Session.close", "session_fork": "Session.fork",
    "session_truncate": "Session.truncate", "session_tokens": "Session.tokens", "session_save": "Session.save",
    "session_restore": "Engine.restore", "session_save_file": "Session.save_file",
    "session_restore_file": "Engine.restore_file",
    "conversation_create": "Conversation", "conversation_destroy": "Conversation.close",
    "conversation_say": "Conversation.say", "conversation_swipe": "Conversation.swipe",
    "conversation_choose": "Conversation.choose", "conversation_append": "Conversation.append",
    "conversation_edit": "Conversation.edit", "conversation_undo": "Conversation.undo",
    "conversation_prefetch": "Conversation.prefetch", "conversation_fork": "Conversation.fork", "conversation_describe": "Conversation.describe",
    "conversation_turn": "Conversation.turn", "conversation_tokens": "Conversation.tokens",
    "conversation_save": "Conversation.save", "conversation_save_file": "Conversation.save_file",
    "conversation_restore": "Engine.restore_conversation",
    "conversation_restore_file": "Engine.restore_conversation_file",
    "prefix_warm": "Prefix", "prefix_pin": "Prefix.pin", "prefix_destroy": "Prefix.close",
    "model_memory_need": "Model.memory_need",
    "rollout_create": "Rollout", "rollout_destroy": "Rollout.close", "rollout_begin": "Rollout.begin",
    "rollout_add_prefix": "Rollout.add_prefix", "rollout_warm": "Rollout.warm", "rollout_set_share": "Rollout.share",
    "rollout_promote": "Rollout.promote", "rollout_roll_back": "Rollout.roll_back",
    "rollout_take_drained": "Rollout.take_drained", "rollout_engine_for": "Rollout.engine_for",
    "rollout_next_turn": "Rollout.next_turn", "rollout_describe": "Rollout.describe",
    "gate_load": "Gate", "gate_destroy": "Gate.close", "gate_label_count": "Gate.labels", "gate_label": "Gate.labels",
    "gate_score": "Gate.score",
    "generate": "Session.generate",  # computes the same through submit, step and poll, which streams share
}
ENUMS = {  # by the prefix of the constants
    "KAIJU_MODEL_": (kaiju.Property, kaiju.TextProperty), "KAIJU_ROLE_": (kaiju.Role,), "KAIJU_CHAT_": (kaiju.Chat,),
    "KAIJU_EVENT_": (kaiju.Kind,), "KAIJU_DONE_": (kaiju.Reason,), "KAIJU_REUSE_": (kaiju.Reuse,), "KAIJU_SHARE_": (kaiju.ShareOf,), "KAIJU_TURN_": (kaiju.Part,),
    "KAIJU_SAMPLER_": (kaiju.Sampler,), "KAIJU_DEVICE_": (kaiju.Device,), "KAIJU_ROLLOUT_": (kaiju.Phase,),
    "KAIJU_CACHE_": (kaiju.CacheKind, kaiju.CacheTier),
    "KAIJU_": (kaiju.Status,),
}
# Fields that Python shows otherwise, or not.
OF_EVENTS = {"token_count": "tokens", "logprob_count": "logprobs",
             "text_size": "text", "score_count": "scores", "reserved": None, "reserved2": None, "reserved3": None}
KINDS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
         "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "double": ctypes.c_double, "void": None,
         "kaiju_status": ctypes.c_int32, "kaiju_option": ctypes.c_int32, "kaiju_sampler": ctypes.c_int32,
         "kaiju_request": ctypes.c_uint64}

with open(HEADER) as file:
    TEXT = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
CODE = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", TEXT, flags=re.M).replace("KAIJU_OWN", "")


def kind_of(declared, answers=False):
    """The type of ctypes for a parameter, a field or a returned value."""
    if "*" in declared or "_fn " in declared + " ":
        return ctypes.c_char_p if answers and "char" in declared else ctypes.c_void_p
    return KINDS[declared.replace("const ", "").split()[0]]


def functions():
    """{name: (what it answers, what it takes)} of the header."""
    found = {}
    for answers, name, takes in re.findall(r"KAIJU_API\s+([\w\s*]+?)\s*\bkaiju_(\w+)\(([^)]*)\)\s*;", CODE):
        takes = [] if takes.strip() == "void" else [kind_of(" ".join(each.split())) for each in takes.split(",")]
        found[name] = (kind_of(answers, True), takes)
    return found


def constants():
    """{name: number} of the header's enums."""
    found = {}
    for body in re.findall(r"\benum\s*{(.*?)}", CODE, re.S):
        found.update({name: int(number) for name, number in re.findall(r"(KAIJU_\w+)\s*=\s*(-?\d+)", body)})
    return found


def structs():
    """{name: [(field, type)]} of the header."""
    found = {}
    for body, name in re.findall(r"typedef struct kaiju_\w+\s*{(.*?)}\s*kaiju_(\w+);", CODE, re.S):
        fields = []
        for declared in filter(str.strip, body.split(";")):
            kind, first, rest = re.match(r"\s*((?:const\s+)?\w+(?:\s*\*)?)\s*(\w+)(.*)", declared, re.S).groups()
            kind = kind_of(kind)
            fields += [(each.strip(), kind) for each in [first] + rest.split(",") if each.strip()]
        found[name] = fields
    return found


def named(path):
    at = kaiju
    for part in path.split("."):
        at = getattr(at, part)
    return at


class Header(Test):
    def test_every_function_is_declared_as_in_the_header(self):
        header = functions()
        self.assertGreater(len(header), 50)
        self.assertEqual(set(header) - set(_c.FUNCTIONS), set(), "add them to FUNCTIONS in _c.py")
        self.assertEqual(set(_c.FUNCTIONS) - set(header), set(), "the header does not have them any more")
        for name, (answers, takes) in header.items():
            with self.subTest(function=name):
                self.assertEqual(list(_c.FUNCTIONS[name]), [answers, *takes])

    def test_every_function_has_a_python_name_and_is_called(self):
        self.assertEqual(set(functions()) ^ set(NAMES), set(), "the table NAMES is another list than the header's")
        code = ""
        for file in os.listdir(os.path.join(PACKAGE, "kaiju")):
            if file.endswith(".py"):
                with open(os.path.join(PACKAGE, "kaiju", file)) as source:
                    code += source.read()
        for name, python in NAMES.items():
            with self.subTest(function=name):
                if python:
                    self.assertTrue(named(python) is not None)
                if name not in ("generate", "error_status") and not name.endswith("_destroy"):
                    self.assertRegex(code, rf"\bkaiju_{name}\b")

    def test_every_struct_is_laid_out_as_in_the_header(self):
        header = structs()
        self.assertEqual(set(header), set(_c.STRUCTS))
        for name, fields in header.items():
            with self.subTest(struct=name):
                python = [(field, ctypes.c_void_p if kind is ctypes.c_char_p else kind)
                          for field, kind in _c.STRUCTS[name]._fields_]
                self.assertEqual(python, fields)

    def test_every_field_has_a_python_name(self):
        for field, _ in structs()["event"]:
            name = OF_EVENTS.get(field, field)
            if name:
                self.assertIn(name, kaiju.Event.__slots__)
        for name, kind, others in (("option_info", kaiju.Option, {}), ("device_info", kaiju.DeviceInfo, {}),
                                   ("engine_info", kaiju.EngineInfo, {}),
                                   ("message", kaiju.Message, {"content_size": "content", "name_size": "name"})):
            for field, _ in structs()[name]:
                if field not in ("struct_size", "reserved"):
                    self.assertIn(others.get(field, field), kind._fields)

    def test_every_constant_and_property_has_a_python_name(self):
        options = {name for name in constants() if re.match("KAIJU_(MODEL_VERIFY|MODEL_HEAD|MODEL_SCALES|MODEL_INTERLEAVE|ENGINE|GENERATE|SESSION)", name)}
        known = {f"{prefix}{each.name}": each.value for prefix, kinds in ENUMS.items() for kind in kinds
                 for each in kind}
        known["KAIJU_MOST_TEXT_BYTES"] = kaiju.MOST_TEXT_BYTES
        known["KAIJU_FREE_MEMORY"], known["KAIJU_WHOLE_SHARE"] = kaiju.FREE_MEMORY, _c.WHOLE_SHARE
        header = {name: number for name, number in constants().items() if name not in options}
        self.assertGreater(len(header), 40)
        self.assertEqual(known, header)

    def test_every_option_is_a_keyword(self):
        options = {name: number for name, number in constants().items()
                   if re.match("KAIJU_(MODEL|ENGINE|GENERATE|SESSION)_", name) and 100 <= number < 500}
        self.assertGreater(len(options), 30)
        listed = {option.number: option for option in kaiju.option_list()}
        self.assertEqual(set(listed), set(options.values()))
        values = {"f": 0.5, "i": 1, "s": "sixteen or so bytes"}
        for name, number in options.items():
            scope, short = name[6:].lower().split("_", 1)
            with self.subTest(option=name):
                self.assertEqual(listed[number].name, f"{scope}.{short}")
                self.assertEqual(kaiju.option_find(f"{scope}.{short}"), number)
                kaiju.Options(**{short: values[listed[number].type]}).close()

    def test_models_and_engines_show_every_property(self):
        for prop in (*kaiju.Property, *kaiju.TextProperty):
            name = prop.name.lower()
            self.assertTrue(name.startswith("chat_") or hasattr(kaiju.Model, name) or
                            f"self.{name} =" in inspect.getsource(kaiju.Model), name)


if __name__ == "__main__":
    main()
