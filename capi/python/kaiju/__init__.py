"""kaiju: int8 language models inside your program, with the same bits everywhere.

    import kaiju

    engine = kaiju.Model().engine()  # the bundled toy model; Model("model.safetensors") is another
    session = engine.session(card=kaiju.Card.bundled("wren"))
    print(session.reply("Hello! Who are you?"))
    for text in session.stream("What do you like?", temperature=0.7, max_tokens=60):
        print(text, end="", flush=True)

Options are keywords, named as in kaiju.h after the scope. Errors are kaiju.Error, with .status and .name. Any number of
threads may ask one engine for replies, and `async for text in session.stream(...)` works without a thread for each.
"""

from ._c import (FREE_MEMORY, MOST_TEXT_BYTES, CacheKind, CacheTier, CalibrationFigures, Chat, ConversationInfo,
                 Device, Kind, MemoryNeed, Metrics, Part, Property, Reason, Reuse, Role, Sampler, Saturation, ShareOf,
                 ShareUsage, Status, TextProperty)
from ._library import build_info, loaded_from, status_name, version, version_number
from .bundled import Card, character_names, gate_path, model_path
from .cache_events import CacheEvent
from .calibration import Calibration
from .conversation import Conversation
from .engine import Engine, EngineInfo, Request
from .errors import (BadModel, Busy, Cancelled, Closed, DeviceLost, Error, InputOutput, Internal, InvalidArgument,
                     LibraryMissing, NotFound, OutOfMemory, Unsupported, WrongType)
from .events import Event, Reply
from .gate import Gate
from .model import DeviceInfo, Message, Model, Placed, Runtime, chat_turns_to_drop
from .options import Option, Options, option_describe, option_find, option_list, sampler_describe
from .prefix import Prefix
from .records import Replayed, record_describe, record_tokens
from .rollout import Phase, Rollout, RolloutInfo
from .session import Session
from .stream import Stream

__version__ = version()

__all__ = [
    "BadModel", "Busy", "CacheEvent", "CacheKind", "CacheTier", "Calibration", "CalibrationFigures", "Cancelled", "Card", "Chat", "Closed", "Conversation",
    "ConversationInfo", "Device", "DeviceInfo", "DeviceLost", "Engine", "EngineInfo", "Error", "Event", "FREE_MEMORY",
    "Gate", "InputOutput", "Internal", "InvalidArgument", "Kind", "LibraryMissing", "MOST_TEXT_BYTES", "MemoryNeed",
    "Message", "Metrics", "Model", "NotFound", "Option", "Options", "OutOfMemory", "Part", "Phase", "Placed", "Prefix",
    "Property", "Reason", "Replayed", "Reply", "Request", "Reuse", "Role", "Rollout", "RolloutInfo", "Runtime",
    "Sampler", "Saturation", "Session", "ShareOf", "ShareUsage", "Status", "Stream", "TextProperty",
    "Unsupported", "WrongType", "build_info",
    "character_names", "chat_turns_to_drop", "gate_path", "loaded_from", "model_path", "option_describe",
    "option_find", "option_list", "record_describe", "record_tokens", "sampler_describe", "status_name", "version",
    "version_number",
]
