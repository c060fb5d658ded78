"""The C interface: its constants, structs and functions, as capi/kaiju.h declares them.

Everything that copies the header is in this file, one line for each name. tests/capi/python/header.py compares the
two."""

from __future__ import annotations

import ctypes as c
import enum
from typing import Dict, Tuple

VERSION = (0, 1)  # of the header that this file copies: major, minor
OPTION_SCOPES = {"model": 100, "engine": 200, "generate": 300, "session": 400}  # the first number of each


class Status(enum.IntEnum):
    """KAIJU_*: what a call answers."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    UNSUPPORTED = 3
    OUT_OF_MEMORY = 4
    BUSY = 5
    CANCELLED = 6
    IO = 7
    BAD_MODEL = 8
    DEVICE_LOST = 9
    INTERNAL = 10


class Property(enum.IntEnum):
    """KAIJU_MODEL_*, the numbers of a model. A chat symbol is a token id."""

    VOCABULARY = 1
    CONTEXT = 2
    LABELS = 3
    WEIGHT_BYTES = 4
    PARAMETERS = 5
    CHAT_BEGIN = 10
    CHAT_CARD = 11
    CHAT_USER = 12
    CHAT_CHARACTER = 13
    CHAT_CLOSE = 14
    CHAT_END = 15
    CHAT_TEXT = 16


class TextProperty(enum.IntEnum):
    """KAIJU_MODEL_*, the texts of a model."""

    NAME = 2
    DIGEST = 4


class Role(enum.IntEnum):
    """KAIJU_ROLE_*: who speaks a message."""

    CARD = 1
    USER = 2
    CHARACTER = 3
    SYSTEM = 4


class Chat(enum.IntFlag):
    """KAIJU_CHAT_*: what Model.chat_format puts around messages."""

    REPLY = 1
    CLOSE = 2
    BEGIN = 4
    OPEN = 8
    AFTER_STOP = 16


class Kind(enum.IntEnum):
    """KAIJU_EVENT_*: what an event reports."""

    TOKEN = 1
    DONE = 5
    FAILED = 6
    SUSPENDED = 7
    RESUMED = 8
    VERDICT = 9
    PREFETCHED = 10


class Reason(enum.IntEnum):
    """KAIJU_DONE_*: why a reply ended."""

    STOP_TOKEN = 1
    LENGTH = 2
    CANCELLED = 3
    DEADLINE = 4
    STOP_STRING = 5
    LOOP = 6
    REFUSED = 7


class Reuse(enum.IntEnum):
    """KAIJU_REUSE_*: why the cached part of a prompt ends."""

    NONE = 0
    WHOLE = 1
    DIFFERENT = 2
    NEW = 3
    EVICTED = 4
    NO_WINDOW = 5
    OTHER_SCOPE = 6
    NO_ROOM = 7


class Part(enum.IntEnum):
    """KAIJU_TURN_*: a part of a turn."""

    INPUT = 1
    REPLY = 2


class Sampler(enum.IntEnum):
    """KAIJU_SAMPLER_*: the samplers of a list."""
    REPETITION_PENALTY = 1
    TEMPERATURE = 2
    TOP_K = 3
    MIN_P = 4
    TOP_P = 5
    FREQUENCY_PENALTY = 6
    PRESENCE_PENALTY = 7
    TYPICAL_P = 8
    TOP_N_SIGMA = 9
    EPSILON_CUTOFF = 10
    ETA_CUTOFF = 11
    XTC = 12
    DRY = 13
    NO_REPEAT_NGRAM = 14
    DYNAMIC_TEMPERATURE = 15
    MIROSTAT = 16


class ShareOf(enum.IntEnum):
    """KAIJU_SHARE_*: whose share of memory and steps it is."""

    TENANT = 1
    CHARACTER = 2


class CacheKind(enum.IntEnum):
    """KAIJU_CACHE_*: what happened to a block."""

    STORED = 1
    REMOVED = 2
    CLEARED = 3


class CacheTier(enum.IntEnum):
    """KAIJU_CACHE_*: the memory in which a block is."""

    DEVICE = 0
    HOST = 1
    FILE = 2


class Device(enum.IntEnum):
    """KAIJU_DEVICE_*: the kind of a device."""

    CPU = 1
    GPU = 2


MOST_TEXT_BYTES = 1048576

P, SIZE, TEXT, REQUEST = c.c_void_p, c.c_size_t, c.c_char_p, c.c_uint64
I32, U32, I64, U64, F64 = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_double


class Struct(c.Structure):
    """A struct of the header. One that begins with struct_size is created with it."""

    def __init__(self, *args: object, **fields: object):
        super().__init__(*args, **fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = c.sizeof(self)

    def __repr__(self) -> str:
        shown = (f"{name[0]}={getattr(self, name[0])!r}" for name in self._fields_ if name[0] != "struct_size")
        return f"{type(self).__name__}({', '.join(shown)})"


class OptionInfo(Struct):
    _fields_ = [("struct_size", SIZE), ("name", TEXT), ("help", TEXT), ("type", I32), ("repeatable", I32),
                ("minimum", F64), ("maximum", F64), ("standard", F64)]


class DeviceInfo(Struct):
    _fields_ = [("struct_size", SIZE), ("name", TEXT), ("backends", TEXT), ("memory_total", U64), ("memory_free", U64),
                ("kind", I32), ("reserved", I32), ("description", TEXT)]


class EngineInfo(Struct):
    _fields_ = [("struct_size", SIZE), ("backend", TEXT), ("device", I32), ("threads", I32), ("max_running", I32),
                ("step_tokens", I32), ("max_waiting", I32), ("max_sessions", I32), ("max_events", I32),
                ("context", I32), ("window", I32), ("reserved", I32), ("kv_bytes_per_token", U64),
                ("window_kv_bytes_per_token", U64), ("cache_bytes", U64)]


class Message(Struct):
    _fields_ = [("role", I32), ("reserved", I32), ("content", TEXT), ("content_size", SIZE), ("name", TEXT),
                ("name_size", SIZE)]


class Event(Struct):
    _fields_ = [("request", REQUEST), ("user_data", P), ("kind", I32), ("reason", I32), ("status", I32),
                ("reserved", I32), ("tokens", P), ("token_count", SIZE), ("logprobs", P), ("logprob_count", SIZE),
                ("text", P), ("text_size", SIZE), ("prompt_tokens", I32), ("cached_tokens", I32),
                ("generated_tokens", I32), ("reserved2", I32), ("wait_nanoseconds", I64),
                ("prefill_nanoseconds", I64), ("decode_nanoseconds", I64), ("scores", P), ("score_count", SIZE),
                ("stop", I32), ("label", I32), ("reuse_end", I32), ("known_tokens", I32),
                ("known_end", I32), ("reserved3", I32)]


class Metrics(Struct):
    """kaiju_metrics, a snapshot: the header says what each number counts."""

    _fields_ = [("struct_size", SIZE)] + [(name, U64) for name in (
        "steps", "step_nanoseconds", "tokens_prefilled", "tokens_decoded", "tokens_from_cache", "requests_waiting",
        "requests_running", "requests_done", "requests_failed", "sessions", "cache_blocks_evicted",
        "cache_global_blocks_total", "cache_global_blocks_free", "cache_window_blocks_total",
        "cache_window_blocks_free", "prompt_tokens", "hit_shared", "hit_own", "hit_other", "miss_new", "miss_evicted",
        "miss_window", "miss_last", "requests_suspended", "hit_host", "hit_file", "host_bytes", "host_blocks",
        "host_blocks_in", "host_blocks_out", "file_bytes", "file_blocks", "file_blocks_in", "file_blocks_out",
        "tier_blocks_lost", "tier_file_failed", "cache_blocks_over_floors")]


class ConversationInfo(Struct):
    """kaiju_conversation_info, a snapshot."""

    _fields_ = [("struct_size", SIZE), ("turns", U64), ("turns_dropped", U64), ("replies", U64), ("reply", U64),
                ("tokens", U64)]


class Guide(Struct):
    """kaiju_guide: what the next token of a guided request may be."""

    _fields_ = [("struct_size", SIZE), ("allowed", P), ("allowed_words", SIZE), ("bias_tokens", P), ("bias", P),
                ("bias_count", SIZE)]


class Replayed(Struct):
    """kaiju_replayed: a reply that was computed again from its record."""

    _fields_ = [("struct_size", SIZE), ("same_model", I32), ("reason", I32), ("recorded_tokens", SIZE),
                ("compared_tokens", SIZE), ("differs_at", I64), ("recorded", I32), ("generated", I32)]


class Share(Struct):
    """kaiju_share: floor and ceiling of memory and of steps."""

    _fields_ = [("struct_size", SIZE), ("cache_floor_bytes", U64), ("cache_ceiling_bytes", U64), ("step_floor", F64),
                ("step_ceiling", F64)]


class ShareUsage(Struct):
    """kaiju_share_usage, a snapshot."""

    _fields_ = [("struct_size", SIZE), ("cache_bytes", U64), ("running", U64), ("tokens_computed", U64)]


class CalibrationOptions(Struct):
    """kaiju_calibration_options; 0 is the default of each."""

    _fields_ = [("struct_size", SIZE), ("window_blocks", I32), ("windows_known", I32), ("least_daily_blocks", I32),
                ("reserved", I32), ("sigmas", F64), ("character_ratio", F64), ("most_clipped", F64)]


class CalibrationFigures(Struct):
    """kaiju_calibration_figures, a snapshot."""

    _fields_ = [("struct_size", SIZE), ("blocks", U64), ("left_out", U64), ("windows", U64), ("far_windows", U64),
                ("known", I32), ("frozen", I32), ("tokens", F64), ("tokens_mean", F64), ("tokens_deviation", F64),
                ("scales", F64), ("scales_mean", F64), ("scales_deviation", F64)]


class Saturation(Struct):
    """kaiju_saturation of a KV slot."""

    _fields_ = [("struct_size", SIZE), ("keys", U64), ("values", U64), ("saturated_keys", U64),
                ("saturated_values", U64)]


class Volatile(Struct):
    """kaiju_volatile: text that changes with every turn, and what it costs."""

    _fields_ = [("struct_size", SIZE), ("text", TEXT), ("text_size", SIZE), ("depth", I32), ("reserved", I32),
                ("prompt_tokens", I32), ("stable_tokens", I32), ("stable_behind_history", I32), ("reserved2", I32)]


class MemoryNeed(Struct):
    """kaiju_memory_need: bytes that an engine would take."""

    _fields_ = [("struct_size", SIZE), ("device", I32), ("reserved", I32), ("weight_bytes", U64), ("kv_bytes", U64),
                ("workspace_bytes", U64), ("host_tier_bytes", U64)]


class RolloutInfo(Struct):
    """kaiju_rollout_info."""

    _fields_ = [("struct_size", SIZE), ("phase", I32), ("share", I32), ("warm_left", U64), ("current", P), ("other", P)]


class CacheEvent(c.Structure):
    """kaiju_cache_event: of a block of the cache."""

    _fields_ = [("kind", I32), ("tier", I32), ("name_low", U64), ("name_high", U64), ("parent_low", U64),
                ("parent_high", U64), ("block_tokens", I32), ("is_private", I32), ("tokens", P), ("token_count", SIZE)]


FREE_MEMORY = -1  # KAIJU_FREE_MEMORY
WHOLE_SHARE = 10000  # KAIJU_WHOLE_SHARE

STRUCTS = {"option_info": OptionInfo, "device_info": DeviceInfo, "engine_info": EngineInfo, "message": Message,
           "event": Event, "metrics": Metrics, "conversation_info": ConversationInfo, "guide": Guide,
           "replayed": Replayed, "volatile": Volatile, "share": Share, "share_usage": ShareUsage,
           "cache_event": CacheEvent, "calibration_options": CalibrationOptions, "calibration_figures": CalibrationFigures,
           "saturation": Saturation,
           "memory_need": MemoryNeed, "rollout_info": RolloutInfo}

CLOCK = c.CFUNCTYPE(I64, P)
PART = c.CFUNCTYPE(None, P, I32)
HOST_THREADS = c.CFUNCTYPE(None, P, I32, PART, P)
LOGITS = c.CFUNCTYPE(None, P, SIZE, P, SIZE, P)
PROGRESS = c.CFUNCTYPE(I32, F64, P)
WRITE = c.CFUNCTYPE(I32, P, SIZE, P)
READ = c.CFUNCTYPE(I64, P, SIZE, P)

# What a function answers, then what it takes; all pointers are P.
FUNCTIONS: Dict[str, Tuple[object, ...]] = {
    "version": (U32,),
    "version_string": (TEXT,),
    "build_info": (TEXT,),
    "status_name": (TEXT, I32),
    "error_status": (I32, P),
    "error_message": (TEXT, P),
    "error_destroy": (None, P),
    "runtime_create": (I32, P, P),
    "runtime_destroy": (None, P),
    "runtime_device_count": (SIZE, P),
    "runtime_device_info": (I32, P, SIZE, P),
    "options_create": (I32, P),
    "options_destroy": (None, P),
    "options_copy": (I32, P, P),
    "options_clear": (I32, P, I32),
    "options_set_int": (I32, P, I32, I64, P),
    "options_set_float": (I32, P, I32, F64, P),
    "options_set_string": (I32, P, I32, P, SIZE, P),
    "options_set_logit_bias": (I32, P, P, P, SIZE, P),
    "options_add_sampler": (I32, P, I32, P, SIZE, P),
    "options_clear_samplers": (I32, P),
    "sampler_describe": (I32, I32, SIZE, P),
    "options_set_clock": (I32, P, P, P),
    "options_set_host_threads": (I32, P, P, P),
    "options_set_logits_hook": (I32, P, P, P),
    "option_find": (I32, P, P),
    "option_describe": (I32, I32, P),
    "model_load": (I32, P, P, P, P, P, P, P),
    "model_destroy": (None, P),
    "model_number": (I32, P, I32, P),
    "model_text": (I32, P, I32, P, P),
    "model_stop_tokens": (SIZE, P, P, SIZE),
    "model_label": (I32, P, SIZE, P, P),
    "tokenize": (I32, P, P, SIZE, P, SIZE, P, P),
    "detokenize": (I32, P, P, SIZE, P, SIZE, P, P),
    "token_text": (I32, P, I32, P, SIZE, P, P),
    "chat_format": (I32, P, P, SIZE, SIZE, I32, P, SIZE, P, P),
    "chat_format_volatile": (I32, P, P, SIZE, SIZE, I32, P, P, SIZE, P, P),
    "chat_turns_to_drop": (SIZE, P, SIZE, SIZE, SIZE, SIZE),
    "engine_create": (I32, P, P, P, P),
    "engine_destroy": (None, P),
    "engine_submit": (I32, P, P, P, SIZE, P, P, P, P),
    "engine_guide": (I32, P, REQUEST, P, P),
    "engine_set_limit": (I32, P, P, P, F64, P),
    "engine_set_share": (I32, P, I32, P, P, P),
    "engine_share_usage": (I32, P, I32, P, P),
    "engine_cancel": (I32, P, REQUEST),
    "engine_suspend": (I32, P, REQUEST),
    "engine_resume": (I32, P, REQUEST),
    "engine_now": (I64, P),
    "engine_step": (I32, P, P),
    "engine_poll": (I32, P, P, SIZE, SIZE, P, P),
    "engine_poll_cache": (I32, P, P, SIZE, SIZE, P, P),
    "engine_cached_blocks": (I32, P, P, SIZE, SIZE, P, P),
    "engine_describe": (I32, P, P),
    "engine_pending": (SIZE, P),
    "engine_wait": (I32, P, I64),
    "engine_wake": (None, P),
    "engine_metrics": (I32, P, P),
    "engine_set_head": (I32, P, P, P),
    "engine_set_scales": (I32, P, P, P),
    "engine_update_weights": (I32, P, P, SIZE, P),
    "engine_calibrate": (I32, P, P, P, P),
    "calibration_create": (I32, P, P, P, P),
    "calibration_destroy": (None, P),
    "calibration_read": (I32, P, P),
    "calibration_saturation": (I32, P, SIZE, P),
    "calibration_save": (I32, P, P, P),
    "calibration_thaw": (I32, P),
    "calibration_reset": (I32, P),
    "engine_scrub": (I32, P, SIZE, P, P, P),
    "engine_record": (I32, P, REQUEST, P, SIZE, P, P),
    "record_describe": (I32, P, SIZE, P, SIZE, P, P),
    "record_tokens": (I32, P, SIZE, P, SIZE, P, P),
    "engine_replay": (I32, P, P, SIZE, P, P),
    "session_create": (I32, P, P, P),
    "session_fork": (I32, P, SIZE, P, P),
    "session_truncate": (I32, P, SIZE, P),
    "session_tokens": (SIZE, P, P, SIZE),
    "session_prefetch": (I32, P, P, I64, P, P, P),
    "session_destroy": (None, P),
    "session_save": (I32, P, P, P, P, P),
    "session_restore": (I32, P, P, P, P, P, P),
    "session_save_file": (I32, P, P, P, P),
    "session_restore_file": (I32, P, P, P, P, P),
    "conversation_create": (I32, P, P, SIZE, P, P),
    "conversation_destroy": (None, P),
    "conversation_say": (I32, P, P, SIZE, P, P, P, P),
    "conversation_swipe": (I32, P, P, P, P, P),
    "conversation_prefetch": (I32, P, P, I64, P, P, P),
    "conversation_choose": (I32, P, SIZE, P),
    "conversation_append": (I32, P, P, SIZE, P, SIZE, P),
    "conversation_edit": (I32, P, SIZE, I32, P, SIZE, P),
    "conversation_undo": (I32, P, P),
    "conversation_fork": (I32, P, SIZE, P, P),
    "conversation_describe": (I32, P, P),
    "conversation_turn": (I32, P, SIZE, I32, P, SIZE, P, P),
    "conversation_tokens": (I32, P, P, SIZE, P, P),
    "conversation_save": (I32, P, P, P, P, P),
    "conversation_restore": (I32, P, P, P, P, P, P),
    "conversation_save_file": (I32, P, P, P, P),
    "conversation_restore_file": (I32, P, P, P, P, P),
    "prefix_warm": (I32, P, P, SIZE, P, P, P, P, P),
    "prefix_pin": (I32, P, P, P),
    "prefix_destroy": (None, P),
    "model_memory_need": (I32, P, P, P, P),
    "rollout_create": (I32, P, I32, P, P),
    "rollout_destroy": (None, P),
    "rollout_begin": (I32, P, P, P),
    "rollout_add_prefix": (I32, P, P, SIZE, P, P),
    "rollout_warm": (I32, P, I32, P, P),
    "rollout_set_share": (I32, P, I32, P),
    "rollout_promote": (I32, P, P),
    "rollout_roll_back": (I32, P, P),
    "rollout_take_drained": (P, P),
    "rollout_engine_for": (P, P, P, SIZE),
    "rollout_next_turn": (I32, P, P, P, SIZE, P, P),
    "rollout_describe": (I32, P, P),
    "gate_load": (I32, P, P, P),
    "gate_destroy": (None, P),
    "gate_label_count": (SIZE, P),
    "gate_label": (I32, P, SIZE, P, P),
    "gate_score": (I32, P, P, SIZE, P, SIZE, P),
    "generate": (I32, P, P, P, SIZE, P, P, P, P, SIZE, P),
}
