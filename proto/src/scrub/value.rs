//! Where the value of a secret starts and ends, after its name.

/// The position of a name's value, in bytes.
pub(super) struct Value<'a> {
    /// From the end of the name to the start of the redacted text.
    pub(super) gap: usize,
    /// Length of the redacted text.
    pub(super) length: usize,
    /// The quotes around the replacement, so that JSON stays valid.
    pub(super) quote: &'a str,
}

const ENDS: [char; 12] = [' ', '\n', '\t', ',', ';', '&', ')', ']', '}', '"', '\'', '\\'];

/// Whether the word precedes a token in an authorization header.
pub(super) fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

/// `Bearer TOKEN`: a token has at least eight bytes, so that prose stays legible.
pub(super) fn after_scheme(tail: &str) -> Option<Value<'static>> {
    let length = plain(tail.strip_prefix(' ')?);
    (length >= 8).then_some(Value { gap: 1, length, quote: "" })
}

/// `name=VALUE`, `name: VALUE`, `"name":"VALUE"`, with any depth of escapes.
pub(super) fn after_key(tail: &str) -> Option<Value<'_>> {
    let unquoted = tail.trim_start_matches('\\').trim_start_matches(['"', '\'']);
    let quote = &tail[..tail.len() - unquoted.len()];
    let unquoted = unquoted.trim_start();
    if unquoted.starts_with("::") {
        return None;
    }
    let behind = unquoted.strip_prefix([':', '='])?.trim_start_matches(['>', ' ', '\t']);
    let behind = behind.strip_prefix("Some(").unwrap_or(behind);
    let gap = tail.len() - behind.len();
    let escapes = behind.bytes().take_while(|byte| *byte == b'\\').count();
    let found = match behind[escapes..].chars().next()? {
        mark @ ('"' | '\'') => {
            let inside = &behind[escapes + 1..];
            Value { gap: gap + escapes + 1, length: quoted(inside, escapes, mark), quote: "" }
        }
        '[' if escapes == 0 => Value { gap, length: bracketed(behind, ']'), quote },
        '{' if escapes == 0 => Value { gap, length: bracketed(behind, '}'), quote },
        _ => Value { gap, length: with_scheme(behind), quote },
    };
    (found.length > 0).then_some(found)
}

/// Up to the quote of the same depth of escapes, without its escapes.
fn quoted(inside: &str, escapes: usize, mark: char) -> usize {
    let mut run = 0;
    for (at, one) in inside.char_indices() {
        if one == mark && (run <= escapes || (escapes == 0 && run % 2 == 0)) {
            return at - run.min(escapes);
        }
        run = if one == '\\' { run + 1 } else { 0 };
    }
    inside.len()
}

fn bracketed(value: &str, close: char) -> usize {
    value.find(close).map_or(value.len(), |at| at + 1)
}

fn with_scheme(value: &str) -> usize {
    let first = plain(value);
    match is_scheme(&value[..first]).then(|| value[first..].strip_prefix(' ')).flatten() {
        Some(token) => first + 1 + plain(token),
        None => first,
    }
}

fn plain(value: &str) -> usize {
    value.find(ENDS).unwrap_or(value.len())
}
