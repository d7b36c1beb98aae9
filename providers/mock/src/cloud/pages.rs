//! Page tokens: opaque, bound to the process epoch, to the list they belong to, and to an age.
//!
//! A walk goes by the order of keys, so that what is added or removed meanwhile never doubles or hides the rest.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What stands on it.
    pub items: Vec<T>,
    /// Empty on the last page.
    pub next: String,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// It is too old.
    #[error("the page token is too old")]
    Expired,
    /// It was never issued for this list by this process.
    #[error("the page token was never issued")]
    Unknown,
}

/// How lists are paged in this process epoch.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The process epoch.
    pub epoch: String,
    /// How long a token is valid.
    pub validity: Duration,
    /// Items of a page at most.
    pub max_size: usize,
}

impl Pages {
    /// The page of `items` (in the order of their keys) that `token` asks for.
    ///
    /// # Errors
    ///
    /// When the token is too old or was never issued.
    pub fn cut<K: Ord + AsRef<str>, T>(
        &self,
        list: &str,
        items: impl IntoIterator<Item = (K, T)>,
        size: i32,
        token: &str,
        now: Timestamp,
    ) -> Result<Page<T>, PageError> {
        let after = if token.is_empty() { None } else { Some(self.read(list, token, now)?) };
        let size = match usize::try_from(size) {
            Ok(size) if size > 0 => size.min(self.max_size),
            _ => self.max_size,
        };
        let mut rest =
            items.into_iter().filter(|(key, _)| after.as_deref().is_none_or(|after| key.as_ref() > after));
        let mut page = Vec::new();
        let mut last = String::new();
        for (key, item) in rest.by_ref().take(size) {
            last.clear();
            last.push_str(key.as_ref());
            page.push(item);
        }
        let next = if rest.next().is_some() { self.write(list, &last, now) } else { String::new() };
        Ok(Page { items: page, next })
    }

    fn write(&self, list: &str, after: &str, now: Timestamp) -> String {
        format!("p\u{1f}{}\u{1f}{list}\u{1f}{}\u{1f}{after}", self.epoch, now.as_millisecond())
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn read(&self, list: &str, token: &str, now: Timestamp) -> Result<String, PageError> {
        let text = from_hex(token).ok_or(PageError::Unknown)?;
        let mut parts = text.splitn(5, '\u{1f}');
        let (Some("p"), Some(epoch), Some(token_list), Some(issued), Some(after)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(PageError::Unknown);
        };
        if epoch != self.epoch || token_list != list {
            return Err(PageError::Unknown);
        }
        let issued: i64 = issued.parse().map_err(|_| PageError::Unknown)?;
        let issued = Timestamp::from_millisecond(issued).map_err(|_| PageError::Unknown)?;
        let limit = SignedDuration::try_from(self.validity).unwrap_or(SignedDuration::MAX);
        if now.duration_since(issued) > limit {
            return Err(PageError::Expired);
        }
        Ok(after.to_owned())
    }
}

fn from_hex(text: &str) -> Option<String> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let bytes = (0..text.len())
        .step_by(2)
        .map(|start| u8::from_str_radix(text.get(start..start + 2)?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(epoch: &str) -> Pages {
        Pages { epoch: epoch.into(), validity: Duration::from_secs(60), max_size: 3 }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn seven() -> Vec<(String, u32)> {
        (0..7).map(|number| (format!("k{number}"), number)).collect()
    }

    #[test]
    fn a_walk_sees_each_item_once_whatever_size_is_asked_for() {
        for (size, pages_wanted) in [(0, 3), (-1, 3), (1, 7), (2, 4), (3, 3), (500, 3)] {
            let (mut seen, mut token, mut count) = (vec![], String::new(), 0);
            loop {
                let page = pages("e").cut("l", seven(), size, &token, at(0)).unwrap();
                assert!(page.items.len() <= 3, "size {size}");
                seen.extend(page.items);
                count += 1;
                token = page.next;
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(seen, (0..7).collect::<Vec<_>>(), "size {size}");
            assert_eq!(count, pages_wanted, "size {size}");
        }
    }

    #[test]
    fn removal_in_mid_walk_hides_nothing_else() {
        let first = pages("e").cut("l", seven(), 3, "", at(0)).unwrap();
        let rest: Vec<_> = seven().into_iter().filter(|(_, number)| *number > 1 && *number != 4).collect();
        let second = pages("e").cut("l", rest, 3, &first.next, at(1)).unwrap();
        assert_eq!(second, Page { items: vec![3, 5, 6], next: String::new() });
    }

    #[test]
    fn tokens_are_bound_to_epoch_list_and_age() {
        let token = pages("e").cut("l", seven(), 3, "", at(0)).unwrap().next;
        assert!(token.len() <= 1024, "tokens are at most 1 KiB");
        let cut = |epoch: &str, list: &str, token: &str, now: i64| {
            pages(epoch).cut(list, seven(), 3, token, at(now)).map(|page| page.items)
        };
        assert_eq!(cut("e", "l", &token, 60_000), Ok(vec![3, 4, 5]));
        assert_eq!(cut("e", "l", &token, 60_001), Err(PageError::Expired));
        assert_eq!(cut("other", "l", &token, 0), Err(PageError::Unknown));
        assert_eq!(cut("e", "another", &token, 0), Err(PageError::Unknown));
        assert_eq!(cut("e", "l", "garbage", 0), Err(PageError::Unknown));
        assert_eq!(cut("e", "l", "zz", 0), Err(PageError::Unknown));
    }
}
