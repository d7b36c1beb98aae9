//! Redacts text that looks like a secret before it leaves the process.
//!
//! In: any text, including whole log lines in any format. Out: the same text with redacted values after names
//! of secrets, bearer tokens, private keys, passwords in URLs and long random strings. It is a safety net
//! below the rule that logs and errors never contain secrets, and errs on the side of redacting.

mod key;
mod value;

pub use key::names_a_secret;

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

const BLOCK: &str = "-----BEGIN ";
const BLOCK_END: &str = "-----END ";
const DASHES: &str = "-----";
/// Words of mixed letters and digits are examined from this length on.
const RANDOM_FROM: usize = 32;

/// The text with everything redacted that looks like a secret.
#[must_use]
pub fn text(input: &str) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(start) = rest.find(BLOCK) {
        scan(&rest[..start], &mut out);
        let block = &rest[start..];
        let length = block_length(block);
        if block[..length].contains("PRIVATE KEY") {
            out.push_str(REDACTED);
        } else {
            out.push_str(&block[..length]);
        }
        rest = &block[length..];
    }
    scan(rest, &mut out);
    out
}

/// Length of a PEM block up to its last dash; the rest of the text if it has no end.
fn block_length(block: &str) -> usize {
    let Some(end) = block.find(BLOCK_END) else { return block.len() };
    let label = end + BLOCK_END.len();
    block[label..].find(DASHES).map_or(block.len(), |dashes| label + dashes + DASHES.len())
}

fn scan(input: &str, out: &mut String) {
    let mut rest = input;
    while !rest.is_empty() {
        let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
        let taken = if length == 0 { other(rest, out) } else { word(rest, length, out) };
        rest = &rest[taken..];
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./+-".contains(&byte)
}

/// Copies one character, or redacts the user part of a URL. Returns the number of bytes consumed.
fn other(rest: &str, out: &mut String) -> usize {
    if let Some(address) = rest.strip_prefix("://") {
        let authority = address.split(['/', ' ', '"', '\\', '\n']).next().unwrap_or_default();
        if let Some(user) = authority.rfind('@') {
            out.push_str("://");
            out.push_str(REDACTED);
            return "://".len() + user;
        }
    }
    let length = rest.chars().next().map_or(0, char::len_utf8);
    out.push_str(&rest[..length]);
    length
}

/// Copies or redacts a word and, if it is the name of a secret, its value. Returns the number of bytes
/// consumed.
fn word(rest: &str, length: usize, out: &mut String) -> usize {
    let (word, tail) = rest.split_at(length);
    if is_random(word) {
        out.push_str(REDACTED);
        return length;
    }
    out.push_str(word);
    let secret = if value::is_scheme(word) {
        value::after_scheme(tail)
    } else if word.starts_with("//") && !tail.starts_with('=') {
        // The end of a URL is a path, even "/token"; what follows describes it.
        None
    } else if is_object(word) && begins_a_message(tail) {
        None
    } else if names_a_secret(word) {
        value::after_key(tail)
    } else {
        None
    };
    let Some(secret) = secret else { return length };
    out.push_str(&tail[..secret.gap]);
    out.push_str(secret.quote);
    out.push_str(REDACTED);
    out.push_str(secret.quote);
    length + secret.gap + secret.length
}

/// A colon, and a word in lower case, as errors begin.
fn begins_a_message(tail: &str) -> bool {
    let told = tail.strip_prefix('"').unwrap_or(tail).strip_prefix(": ");
    told.is_some_and(|told| told.starts_with(|first: char| first.is_ascii_lowercase()))
}

/// Whether a word is `namespace/name`, of which a message is told after a colon. The prefix of an annotation has a dot.
fn is_object(word: &str) -> bool {
    word.split_once('/').is_some_and(|(namespace, name)| {
        let is_plain = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-';
        !namespace.is_empty() && namespace.chars().all(is_plain) && !name.contains('/')
    })
}

/// Whether a word looks like a key or a token: long, of all three classes, alternating between them as names
/// do not.
fn is_random(word: &str) -> bool {
    if word.len() < RANDOM_FROM {
        return false;
    }
    let classes: Vec<u8> = word.bytes().map(class).collect();
    let changes = classes.windows(2).filter(|pair| pair[0] != pair[1] && pair[0] > 0 && pair[1] > 0).count();
    (1..=3).all(|class| classes.contains(&class)) && changes * 10 >= word.len() * 3 && !is_spelled(word)
}

/// Whether it consists of words, like a method's path: most of it is runs of lowercase letters, which holds
/// for less than one random word in five hundred.
fn is_spelled(word: &str) -> bool {
    let runs = word.split(|one: char| !one.is_ascii_lowercase()).map(str::len).filter(|run| *run >= 3);
    let all = word.bytes().filter(|byte| class(*byte) > 0).count();
    runs.sum::<usize>() * 100 >= all * 55
}

fn class(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => 1,
        b'a'..=b'z' => 2,
        b'0'..=b'9' => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
