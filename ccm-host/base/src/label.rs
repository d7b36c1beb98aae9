//! The grammar of labels, which annotations share: the apiserver's.

/// The labels that say a zone, and a region: by the current name, and by the deprecated one.
pub const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
pub const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

/// A label value: empty, or at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// A label or annotation key: a name, after an optional DNS subdomain and a slash.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Lower-case DNS labels separated by dots.
pub fn is_subdomain(text: &str) -> bool {
    let end = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    text.len() <= LONGEST_PREFIX
        && text.split('.').all(|label| {
            label.starts_with(end)
                && label.ends_with(end)
                && label.chars().all(|char| end(char) || char == '-')
        })
}

fn is_name(text: &str) -> bool {
    let end = |char: char| char.is_ascii_alphanumeric();
    text.len() <= LONGEST_NAME
        && text.starts_with(end)
        && text.ends_with(end)
        && text.chars().all(|char| end(char) || matches!(char, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_the_apiservers() {
        let long = "a".repeat(64);
        for (key, want) in [
            ("a", true),
            ("A.b_c-9", true),
            ("example.com/a", true),
            ("", false),
            ("/a", false),
            ("example.com/", false),
            ("a/b/c", false),
            ("Example.com/a", false),
            ("example-.com/a", false),
            ("example..com/a", false),
            ("-a", false),
            (long.as_str(), false),
        ] {
            assert_eq!(is_key(key), want, "{key:?}");
        }
        for (value, want) in
            [("", true), ("eu-1", true), ("eu 1", false), ("eu-", false), (long.as_str(), false)]
        {
            assert_eq!(is_value(value), want, "{value:?}");
        }
    }
}
