"""The one exception of the gate."""


class Wrong(Exception):
    """A command line or a file that cannot be used. The message names the thing and the remedy."""
