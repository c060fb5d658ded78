"""The one exception of the importer: what is wrong with a source, and what to do."""


class Refused(Exception):
    """A source that is damaged, contradicts itself or is not supported. The message names the thing and the remedy."""


def shown(text: object, limit: int = 80) -> str:
    """A name from a file for a message: control characters escaped, and no longer than `limit`."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"
