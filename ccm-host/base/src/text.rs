//! Texts that strangers wrote, cut to what a message can hold.

use std::borrow::Cow;

/// The longest message of an Event or a condition: what events.k8s.io allows.
pub const MESSAGE: usize = 1024;

/// The longest name that a message shows in full: Kubernetes' own names are no longer.
pub const NAME: usize = 253;

/// At most `most` bytes of a text, ending in `…` if it is cut.
#[must_use]
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
