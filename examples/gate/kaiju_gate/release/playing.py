"""Plays conversations: the model replies to each turn. Every request carries all that was said, as a server's does."""

from __future__ import annotations

import dataclasses
from typing import Sequence

import kaiju

from ..scoring import each
from ..sets import Message
from .conversations import Conversation

MOST = 60  # tokens of a reply


@dataclasses.dataclass(frozen=True)
class Said:
    """A reply, and what its request cost."""

    text: str
    ended: bool  # by the model, not by the limit of tokens
    tokens: int
    prompt_tokens: int
    cached_tokens: int


@dataclasses.dataclass(frozen=True)
class Played:
    """A conversation and the replies of one model, one for each of the user's turns."""

    conversation: Conversation
    replies: tuple[Said, ...]

    def messages(self) -> list[Message]:
        found = [("card", self.conversation.card)]
        for says, said in zip(self.conversation.says, self.replies):
            found += [("user", says), ("character", said.text)]
        return found


def _reply(engine: kaiju.Engine, messages: Sequence[Message], salt: str) -> Said:
    """Greedy, so that one model says the same each time. Requests with the same salt find each other's KV."""
    if len(engine.model.chat_format(list(messages))) + MOST > engine.model.context:
        return Said("", False, 0, 0, 0)
    with engine.session() as session:
        reply = session.reply(list(messages), temperature=0, max_tokens=MOST, salt=salt)
    ended = reply.reason == kaiju.Reason.STOP_TOKEN
    return Said(str(reply).strip(), ended, reply.generated_tokens, reply.prompt_tokens, reply.cached_tokens)


def play(engine: kaiju.Engine, conversations: Sequence[Conversation]) -> list[Played]:
    def one(_: kaiju.Session, conversation: Conversation) -> Played:
        messages: list[Message] = [("card", conversation.card)]
        replies = []
        for says in conversation.says:
            messages.append(("user", says))
            replies.append(_reply(engine, messages, conversation.id))
            messages.append(("character", replies[-1].text))
        return Played(conversation, tuple(replies))

    return each(engine, conversations, "conversations", one)
