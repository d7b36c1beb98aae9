//! Texts that strangers wrote, cut to what a message can hold.

use std::{borrow::Cow, error::Error};

/// The longest message of an Event or a condition: what events.k8s.io allows.
pub const MESSAGE: usize = 1024;

/// The longest name that a message shows in full: Kubernetes' own names are no longer.
pub const NAME: usize = 253;

/// At most `most` bytes of a text, ending in `…` if it is cut.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    const ELLIPSIS: char = '…';
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(most.saturating_sub(ELLIPSIS.len_utf8()));
    let mut start = text[..end].to_owned();
    start.push(ELLIPSIS);
    Cow::Owned(start)
}

/// The text of an error with those of its sources, on one line.
pub fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    append_sources(&mut text, error.source());
    text
}

/// Adds what an error's sources say. Several layers of a client repeat their source in their own text.
pub fn append_sources(text: &mut String, mut source: Option<&(dyn Error + 'static)>) {
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        source = error.source();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let rows =
            [("short", 5, "short"), ("longer", 5, "lo…"), ("ääää", 7, "ää…"), ("ääää", 6, "ä…"), ("", 5, "")];
        for (text, most, want) in rows {
            assert_eq!(cut(text, most), want, "{text:?} {most}");
        }
    }
}
