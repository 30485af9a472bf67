"""The SDK's event objects, each built by the one class that the event's ``type`` names.

The SDK lets pydantic try a union of some 59 event classes for every event, which is most of what a
streamed event costs. The class is known from ``type``; building it directly gives an equal object.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import openai
import pydantic
from openai.types.responses import Response, ResponseStreamEvent

__all__ = ["EventFactory", "event_classes"]

_ModelT = TypeVar("_ModelT", bound=openai.BaseModel)


@cache
def event_classes() -> Mapping[str, type[openai.BaseModel]]:
    """The SDK's event classes by the ``type`` they declare, and under ``""`` the one for other types.

    The SDK gives an event of a type it does not know the first class of its union.
    """
    union = get_args(ResponseStreamEvent)[0]
    classes = get_args(union)
    by_type = {name: cls for cls in classes for name in get_args(cls.model_fields["type"].annotation)}
    return {**by_type, "": classes[0]}


class EventFactory:
    """Builds the SDK objects of one response.

    Args:
        response: The HTTP response, for the error of a client that validates strictly.
        strict: Whether the client validates strictly, as its (private) option says.
    """

    __slots__ = ("_classes", "_other", "_response", "_strict")

    def __init__(self, response: Any, *, strict: bool = False) -> None:
        self._response = response
        self._strict = strict
        self._classes = event_classes()
        self._other = self._classes[""]

    def event(self, data: dict[str, Any]) -> Any:
        """The event object for one event.

        Raises:
            openai.APIResponseValidationError: The data does not fit the class, and the client is strict.
        """
        return self._build(self._classes.get(data["type"], self._other), data)

    def response(self, data: dict[str, Any]) -> Response:
        """The ``Response`` object for a response, complete or not; never strict."""
        return _lenient(Response, data)

    def _build(self, cls: type[_ModelT], data: dict[str, Any]) -> _ModelT:
        try:
            return cls.model_validate(data)
        except pydantic.ValidationError as error:
            if self._strict:
                raise openai.APIResponseValidationError(response=self._response, body=data) from error
        return _construct(cls, data)


def _lenient(cls: type[_ModelT], data: dict[str, Any]) -> _ModelT:
    try:
        return cls.model_validate(data)
    except pydantic.ValidationError:
        return _construct(cls, data)


def _construct(cls: type[_ModelT], data: dict[str, Any]) -> _ModelT:
    """What the SDK does with data that does not validate: an object of the class all the same."""
    try:
        return cls.construct(**data)
    except Exception:
        return cls.construct(**_without_private_keys(data))


def _without_private_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_private_keys(entry) for key, entry in value.items() if not key.startswith("_")}
    if isinstance(value, list):
        return [_without_private_keys(entry) for entry in value]
    return value
