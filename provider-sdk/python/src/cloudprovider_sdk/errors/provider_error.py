"""The error itself. `table` maps its reason to a gRPC code, `wire` encodes it."""

from collections.abc import Mapping

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk import scrub
from cloudprovider_sdk.contract import MAX_MESSAGE_TEXT_BYTES


class ProviderError(Exception):
    """An error with one of the contract's reasons.

    The message is for people: lowercase, stable from call to call, at most 1 KiB (longer ones are cut); text that varies
    goes into `metadata`. Anything that looks like a secret is redacted in both. `retry_after` is in seconds. `fields` are
    (Kubernetes field path, why), `quotas` are (subject, description).
    """

    def __init__(
        self,
        reason: pb.ErrorReason.ValueType,
        message: str,
        *,
        retry_after: float | None = None,
        metadata: Mapping[str, str] | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        quotas: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.reason = reason
        self.message = cut(scrub.text(message), MAX_MESSAGE_TEXT_BYTES)
        self.retry_after = retry_after
        self.metadata = {key: _value(key, value) for key, value in (metadata or {}).items()}
        self.fields = tuple((scrub.text(path), scrub.text(why)) for path, why in fields)
        self.quotas = tuple((scrub.text(subject), scrub.text(what)) for subject, what in quotas)
        super().__init__(f"{self.message} ({self.reason_name})")

    @property
    def reason_name(self) -> str:
        """The reason as sent on the wire, for example RATE_LIMITED."""
        return pb.ErrorReason.Name(self.reason).removeprefix("ERROR_REASON_")


def _value(key: str, value: str) -> str:
    return scrub.REDACTED if scrub.names_a_secret(key) else scrub.text(value)


def cut(text: str, most: int) -> str:
    """Return the longest prefix of a text that has at most this many bytes and ends between characters."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")
