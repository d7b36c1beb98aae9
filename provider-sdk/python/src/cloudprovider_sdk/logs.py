"""Sets up a sidecar's logs, once at its start: to stderr, with secrets redacted and the call named on each line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from cloudprovider_sdk import scrub
from cloudprovider_sdk.call import current

LogFormat = Literal["text", "json"]
"""Text for humans, or one JSON object per line."""

_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup(log_format: LogFormat = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Set up the root logger. `level` is a level, or directives such as "info,my_package=debug".

    Raises `ValueError` for an unknown level.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(ScrubbingFormatter(log_format))
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for directive in level.split(","):
        name, _, wanted = directive.rpartition("=")
        number = logging.getLevelNamesMapping().get(wanted.strip().upper().replace("TRACE", "DEBUG"))
        if number is None:
            raise ValueError(f"{directive!r} is not a log level; use for example info, or info,my_package=debug")
        logging.getLogger(name.strip() or None).setLevel(number)


class ScrubbingFormatter(logging.Formatter):
    """Formats a record with its `extra` fields and those of its call, each value scrubbed; as JSON on one line."""

    def __init__(self, log_format: LogFormat = "text") -> None:
        super().__init__()
        self._json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = scrub.text(record.getMessage())
        cause = scrub.text(self.formatException(record.exc_info)) if record.exc_info else ""
        fields = {key: _value(key, value) for key, value in (_call_fields() | _extra(record)).items()}
        if self._json:
            head = {"timestamp": when, "level": record.levelname, "logger": record.name, "message": message}
            return json.dumps(head | fields | ({"exception": cause} if cause else {}), default=str)
        pairs = "".join(f" {key}={value!r}" for key, value in fields.items())
        return f"{when} {record.levelname:5} {record.name}: {message}{pairs}" + (f"\n{cause}" if cause else "")


def _call_fields() -> dict[str, object]:
    call = current.get()
    if call is None:
        return {}
    fields: dict[str, object] = {"service": call.service, "method": call.method, "request_id": call.request_id}
    return fields | ({"cluster_uid": call.cluster.uid} if call.cluster.uid else {})


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}


def _value(key: str, value: object) -> object:
    if scrub.names_a_secret(key):
        return scrub.REDACTED
    return value if isinstance(value, bool | int | float) else scrub.text(str(value))
