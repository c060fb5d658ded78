"""Values of a config that nobody has checked: each is fetched with its type and its bounds."""

import math
from typing import Any

from refused import Refused, shown

_MISSING = object()


class Fields:
    """A dict of a file, and how messages call it, such as "config.json"."""

    def __init__(self, values: Any, where: str, prefix: str = ""):
        if not isinstance(values, dict):
            raise Refused(f"{where} is not an object of names and values")
        self.values, self.where, self.prefix = values, where, prefix

    def has(self, name: str) -> bool:
        return self.values.get(self.prefix + name) is not None

    def wrong(self, name: str, rule: str) -> Refused:
        return Refused(
            f"{self.where}: {self.prefix}{name} is {shown(repr(self.values.get(self.prefix + name)))}; {rule}"
        )

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(self.prefix + name)
        if value is None:
            if default is _MISSING:
                raise Refused(f"{self.where} lacks {self.prefix}{name}; fetch the model again, or convert it anew")
            return default
        return value

    def whole(self, name: str, low: int, high: int, default: Any = _MISSING) -> Any:
        value = self._get(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"it must be a whole number from {low} to {high}")
        return value

    def number(self, name: str, low: float, high: float, default: Any = _MISSING) -> Any:
        value = self._get(name, default)
        if value is default:
            return value
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
            or not low <= value <= high
        ):
            raise self.wrong(name, f"it must be a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: Any = _MISSING) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "it must be true or false")
        return value

    def text(self, name: str, default: Any = _MISSING) -> Any:
        value = self._get(name, default)
        if value is not default and not isinstance(value, str):
            raise self.wrong(name, "it must be a text")
        return value

    def list(self, name: str, count: int, kind: type, default: Any = _MISSING) -> Any:
        value = self._get(name, default)
        if value is default:
            return value
        if not isinstance(value, list) or len(value) != count or any(type(item) is not kind for item in value):
            raise self.wrong(name, f"it must be a list of {count} values of type {kind.__name__}")
        return value
