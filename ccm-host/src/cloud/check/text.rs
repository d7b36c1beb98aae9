//! Provider texts, cut to the contract's limits and made safe to display.

/// Cuts the text to `most` bytes at a character boundary and replaces control characters by spaces.
pub(in crate::cloud) fn shown(text: &str, most: usize) -> String {
    let clean: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    cut(&clean, most).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_hold_no_control_characters() {
        for (text, most, want) in
            [("abc", 9, "abc"), ("abc", 2, "ab"), ("aä", 2, "a"), ("a\nb\u{7}", 9, "a b ")]
        {
            assert_eq!(shown(text, most), want, "{text:?}");
        }
    }
}
