"""Requests that cannot be met. Standard library only."""

import json


class RequestError(Exception):
    """The request cannot be met; the message is for the user."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def of_size(said, hint):
    """The refusal of a size that was asked for, with what can be given."""
    return RequestError("size", json.dumps({"said": said, "hint": hint}))
