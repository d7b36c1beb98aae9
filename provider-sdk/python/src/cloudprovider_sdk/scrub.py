"""Redacts text that looks like a secret before it leaves the process.

In: any text, including whole log lines of any format. Out: the same text, with redacted values after the name of a secret,
bearer tokens, private keys, passwords in URLs and long random strings. A safety net below the rule that no
secret is ever passed to a log or an error: when in doubt it redacts.
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

from cloudprovider_sdk import proto as pb

REDACTED: Final = "[redacted]"
"""Replaces a secret."""

_RANDOM_FROM: Final = 32
"""Words of mixed letters and digits are checked from this length on."""

_PEM = re.compile(r"-----BEGIN .*?(?:-----END .*?(?:-----|\Z)|\Z)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_./+-]+")
_USER_OF_URL = re.compile(r"://([^/ \"\\\n]*)@")
_SECRET = re.compile(
    "password|passwd|passphrase|secret|token|authorization|credential|apikey|privatekey|accesskey|sessionkey"
    "|signingkey|bearer|cookie"
)
_OBJECT = re.compile(r"[a-z0-9-]+/[^/]*\Z")
"""`namespace/name`, of which a message tells after a colon. The prefix of an annotation has a dot."""
_MESSAGE = re.compile(r"\"?: [a-z]")
"""A colon, and a word in lower case, as errors begin."""
_SCHEMES = frozenset({"bearer", "basic"})
_PLAIN = re.compile(r"[^ \n\t,;&)\]}\"'\\]*")
_ASSIGNMENT = re.compile(r"(?P<quote>\\*[\"']*)\s*(?!::)[:=][> \t]*(?:Some\()?(?P<escapes>\\*)")
_REASONS = frozenset(name.removeprefix("ERROR_REASON_") for name in pb.ErrorReason.keys())  # noqa: SIM118


def text(original: str) -> str:
    """Return the text with everything redacted that looks like a secret."""
    out: list[str] = []
    at = 0
    for block in _PEM.finditer(original):
        _scan(original[at : block.start()], out)
        out.append(REDACTED if "PRIVATE KEY" in block[0] else block[0])
        at = block.end()
    _scan(original[at:], out)
    return "".join(out)


def names_a_secret(name: str) -> bool:
    """Return whether a field, a map key or an option of this name holds a secret."""
    # Reasons such as RESUME_TOKEN_EXPIRED precede a colon, too.
    return bool(_SECRET.search(re.sub(r"[-_. ]", "", name.lower()))) and name not in _REASONS


def _scan(piece: str, out: list[str]) -> None:
    at = 0
    while at < len(piece):
        if word := _WORD.match(piece, at):
            at = _word(piece, word[0], word.end(), out)
        elif url := _USER_OF_URL.match(piece, at):
            out.append(f"://{REDACTED}")
            at = url.end(1)
        else:
            out.append(piece[at])
            at += 1


def _word(piece: str, word: str, end: int, out: list[str]) -> int:
    """Copy or redact a word and, if it names a secret, redact its value. Return where the rest begins."""
    if _is_random(word):
        out.append(REDACTED)
        return end
    out.append(word)
    secret = None
    if word.lower() in _SCHEMES:
        secret = _after_scheme(piece, end)
    elif _OBJECT.match(word) and _MESSAGE.match(piece, end):
        pass
    elif names_a_secret(word) and not (word.startswith("//") and not piece.startswith("=", end)):
        # The end of a URL names a place, even "/token"; a colon after it introduces a message, not a value.
        secret = _after_key(piece, end)
    if secret is None:
        return end
    out += (piece[end : secret.start], secret.quote, REDACTED, secret.quote)
    return secret.end


def _is_random(word: str) -> bool:
    """Return whether a word looks like a key or a token: long, and alternating between all three classes, as names do not."""
    if len(word) < _RANDOM_FROM:
        return False
    classes = [1 if c.isupper() else 2 if c.islower() else 3 if c.isdigit() else 0 for c in word]
    changes = sum(a != b and a > 0 and b > 0 for a, b in pairwise(classes))
    return {1, 2, 3} <= set(classes) and changes * 10 >= len(word) * 3 and not _is_spelled(word)


def _is_spelled(word: str) -> bool:
    """Return whether a word consists of words, like a method's path: most of it is runs of lowercase letters.

    Fewer than one in five hundred words of random letters and digits pass.
    """
    spelled = sum(map(len, re.findall(r"[a-z]{3,}", word)))
    return spelled * 100 >= sum(map(str.isalnum, word)) * 55


class _Value(NamedTuple):
    """The value after a name: the range to redact, and the quote to put around the replacement."""

    start: int
    end: int
    quote: str = ""


def _after_scheme(piece: str, at: int) -> _Value | None:
    """Find TOKEN in `Bearer TOKEN`: it has at least eight bytes, so that prose stays legible."""
    if not piece.startswith(" ", at):
        return None
    end = _plain(piece, at + 1)
    return _Value(at + 1, end) if end - at > len("secrets.") else None


def _after_key(piece: str, at: int) -> _Value | None:
    """Find VALUE in `name=VALUE`, `name: VALUE`, `"name":"VALUE"`, with any depth of escapes."""
    found = _ASSIGNMENT.match(piece, at)
    if found is None or found.end() == len(piece):
        return None
    quote, escapes, start = found["quote"], len(found["escapes"]), found.end()
    mark = piece[start]
    if mark in "\"'":
        value = _Value(start + 1, _quoted(piece, start + 1, escapes, mark))
    elif mark in "[{" and not escapes:
        close = piece.find("]" if mark == "[" else "}", start)
        value = _Value(start, len(piece) if close < 0 else close + 1, quote)
    else:
        start -= escapes
        value = _Value(start, _with_scheme(piece, start), quote)
    return value if value.end > value.start else None


def _quoted(piece: str, at: int, escapes: int, mark: str) -> int:
    """Return where the closing quote of the same depth of escapes begins, including its escapes."""
    run = 0
    for end in range(at, len(piece)):
        if piece[end] == mark and (run <= escapes or (not escapes and run % 2 == 0)):
            return end - min(run, escapes)
        run = run + 1 if piece[end] == "\\" else 0
    return len(piece)


def _with_scheme(piece: str, at: int) -> int:
    end = _plain(piece, at)
    if piece[at:end].lower() in _SCHEMES and piece.startswith(" ", end):
        return _plain(piece, end + 1)
    return end


def _plain(piece: str, at: int) -> int:
    found = _PLAIN.match(piece, at)
    return at if found is None else found.end()
