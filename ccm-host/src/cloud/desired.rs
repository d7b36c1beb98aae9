//! The digest of a balancer's wanted state, in three parts, so that what a list says was applied also says what differs.
//!
//! In: the class, and digests over the Service and over its backends. Out: one text, opaque to providers, that is stored
//! with the balancer; and from two of these, or from one that was listed, what they have in common. What to do about a
//! difference is decided in [`crate::controllers`].
//!
//! ```text
//! 8 digits of the class - 26 of the Service, its class included - 26 of the backends
//! ```
//!
//! Together 62 characters of `0-9a-f-`: they fit into the value of a label of any cloud.

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits that tell classes of one cluster apart.
const CLASS: usize = 8;
/// Hexadecimal digits of each other part: 104 bits.
const PART: usize = 26;

const SEPARATOR: char = '-';

/// Puts the parts together. The later two are digests already, and are cut.
pub(super) fn desired(class: Option<&str>, service: &str, backends: &str) -> String {
    join(class, part_of(service), part_of(backends))
}

fn part_of(digest: &str) -> &str {
    digest.get(..PART).unwrap_or(digest)
}

fn is_ours(digest: &str) -> bool {
    let mut parts = digest.split(SEPARATOR);
    let is_class = |part: &str| part.len() == CLASS && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.next().is_some_and(is_class) && parts.count() == 2
}

/// As [`desired`], with parts that hold no separator and may be of any length.
pub(super) fn join(class: Option<&str>, service: &str, backends: &str) -> String {
    format!("{}{SEPARATOR}{service}{SEPARATOR}{backends}", part_of_class(class))
}

/// Whether nothing but the nodes behind the balancer differs. False where a text was not made here.
#[must_use]
pub fn differ_in_backends_only(a: &str, b: &str) -> bool {
    match (a.rsplit_once(SEPARATOR), b.rsplit_once(SEPARATOR)) {
        (Some((a, of_a)), Some((b, of_b))) => a == b && of_a != of_b,
        _ => false,
    }
}

/// The digest of a balancer that is as the first says but for its backends, which are those of the second. None where the
/// backends are the same already, or where the first text was not made here.
#[must_use]
pub fn with_backends_of(applied: &str, wanted: &str) -> Option<String> {
    let (rest, before) = applied.rsplit_once(SEPARATOR)?;
    let (_, backends) = wanted.rsplit_once(SEPARATOR)?;
    (is_ours(applied) && before != backends).then(|| format!("{rest}{SEPARATOR}{backends}"))
}

/// Whether the digest of a balancer covers the set of backends with this digest.
#[must_use]
pub fn covers_backends(digest: &str, backends: &str) -> bool {
    digest.rsplit_once(SEPARATOR).is_some_and(|(_, part)| part == part_of(backends))
}

/// Whether a balancer with that digest was made for a Service of another class. Without doubt only: a text that was not
/// made here proves nothing.
#[must_use]
pub fn is_for_another_class(digest: &str, class: Option<&str>) -> bool {
    let part = digest.split(SEPARATOR).next().unwrap_or_default();
    is_ours(digest) && part != part_of_class(class)
}

/// No class and an empty one differ.
fn part_of_class(class: Option<&str>) -> String {
    let text = class.map_or_else(String::new, |class| format!("={class}"));
    hex(&Sha256::digest(text)).chars().take(CLASS).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(class: Option<&str>, service: char, backends: char) -> String {
        let part = |digit: char| digit.to_string().repeat(32);
        desired(class, &part(service), &part(backends))
    }

    #[test]
    fn it_fits_into_the_label_of_any_cloud() {
        let text = digest(Some("example.com/a"), 'a', 'b');
        assert!(text.len() <= 63, "{text}");
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{text}");
    }

    #[test]
    fn two_digests_say_whether_only_the_backends_differ() {
        let rows = [
            (digest(None, 'a', 'b'), digest(None, 'a', 'c'), true),
            (digest(None, 'a', 'b'), digest(None, 'a', 'b'), false),
            (digest(None, 'a', 'b'), digest(None, 'c', 'b'), false),
            (digest(None, 'a', 'b'), digest(None, 'c', 'd'), false),
            (digest(None, 'a', 'b'), digest(Some("x"), 'a', 'c'), false),
            ("somebody else's".to_owned(), digest(None, 'a', 'b'), false),
            ("d1".to_owned(), "d2".to_owned(), false),
        ];
        for (a, b, want) in rows {
            assert_eq!(differ_in_backends_only(&a, &b), want, "{a} and {b}");
            assert_eq!(differ_in_backends_only(&b, &a), want, "{b} and {a}");
        }
    }

    #[test]
    fn backends_are_replaced_and_nothing_else() {
        let (applied, edited) = (digest(None, 'a', 'b'), digest(Some("x"), 'c', 'd'));
        assert_eq!(with_backends_of(&applied, &edited), Some(digest(None, 'a', 'd')));
        assert_eq!(with_backends_of(&applied, &digest(None, 'c', 'b')), None, "they have not changed");
        for text in ["", "d1", "a-b", "somebody-else's-text"] {
            assert_eq!(with_backends_of(text, &edited), None, "{text:?} was not made here");
        }
        let set = |digit: char| digit.to_string().repeat(32);
        assert!(covers_backends(&applied, &set('b')) && !covers_backends(&applied, &set('c')));
        assert!(!covers_backends("d1", &set('b')));
    }

    #[test]
    fn a_digest_says_for_which_class_it_was_made() {
        let classes = [None, Some(""), Some("a"), Some("b")];
        for made_for in classes {
            for now in classes {
                let digest = digest(made_for, 'a', 'b');
                assert_eq!(is_for_another_class(&digest, now), made_for != now, "{made_for:?}, {now:?}");
            }
        }
        for text in ["", "d1", "00000000", "somebody else's", "0-1-2", "00112233445566778899aabbccddeeff"] {
            assert!(!is_for_another_class(text, None), "{text:?} proves nothing");
        }
    }
}
