//! Pages of a list, with tokens that keep the contract's promises whatever the cloud's own tokens do.
//!
//! In: all items of a list, or the page token of a cloud that pages itself. Out: a token of at most 1 KiB
//! that stays valid for the promised time. It is signed, together with its list, its cluster and the time,
//! with a key of this process, so that a token that was never issued is recognised.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cloudprovider_proto::defaults;
use parking_lot::Mutex;
use ring::{hmac, rand::SystemRandom};
use tokio::time::Instant;

use crate::proto::{
    ClusterRef, ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest, ListRoutesRequest,
};
use crate::{ProviderError, Result};

const SIGNATURE: usize = 32;
/// What a token contains besides its signature: the time, and its position.
const CLAIM: usize = 8 + 1;
/// The longest position that fits into a token of 1 KiB.
const LONGEST_WITHIN: usize = 1024 / 4 * 3 - SIGNATURE - CLAIM;
const WITHIN: u8 = 0;
const KEPT: u8 = 1;
/// The number of oversized cloud tokens kept in memory; the oldest are dropped first and count as expired.
const MOST_KEPT: usize = 4096;

/// Any request for a page.
pub trait PageRequest: sealed::Sealed {}

mod sealed {
    use super::ClusterRef;

    pub trait Sealed {
        const LIST: &'static str;
        fn cluster(&self) -> Option<&ClusterRef>;
        fn token(&self) -> &str;
        fn size(&self) -> i32;
    }
}

macro_rules! page_requests {
    ($($request:ident)*) => {$(
        impl PageRequest for $request {}

        impl sealed::Sealed for $request {
            const LIST: &'static str = stringify!($request);

            fn cluster(&self) -> Option<&ClusterRef> {
                self.cluster.as_ref()
            }

            fn token(&self) -> &str {
                &self.page_token
            }

            fn size(&self) -> i32 {
                self.page_size
            }
        }
    )*};
}

page_requests!(ListClustersRequest ListInstancesRequest ListLoadBalancersRequest ListRoutesRequest);

/// Cuts lists into pages, or passes on a cloud's own pages; one per provider suffices.
#[derive(Debug)]
pub struct Pager {
    key: Option<hmac::Key>,
    start: Instant,
    validity: Duration,
    kept: Mutex<Kept>,
}

/// Positions that did not fit into a token, by number, with the time of issue.
#[derive(Debug, Default)]
struct Kept {
    last: u64,
    texts: BTreeMap<u64, (Duration, String)>,
}

impl Default for Pager {
    /// A pager with the contract's default validity.
    fn default() -> Self {
        Self::new(defaults::TOKEN_VALIDITY)
    }
}

impl Pager {
    /// `validity` is the advertised `Intervals.page_token_validity`; the cloud must accept its own tokens for
    /// as long.
    #[must_use]
    pub fn new(validity: Duration) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        Self { key, start: Instant::now(), validity, kept: Mutex::default() }
    }

    /// The cloud's own token from which the request continues; empty for the first page. Call it before
    /// querying the cloud.
    ///
    /// # Errors
    ///
    /// [`ProviderError::page_token_expired`] and [`ProviderError::invalid_token`].
    pub fn open(&self, request: &impl PageRequest) -> Result<String> {
        if request.token().is_empty() {
            return Ok(String::new());
        }
        let token = URL_SAFE_NO_PAD.decode(request.token()).map_err(|_| ProviderError::invalid_token())?;
        let (signature, claim) =
            token.split_at_checked(SIGNATURE).ok_or_else(ProviderError::invalid_token)?;
        let signed = signed(request, claim);
        let genuine = self.key.as_ref().is_some_and(|key| hmac::verify(key, &signed, signature).is_ok());
        let (millis, rest) =
            claim.split_first_chunk().filter(|_| genuine).ok_or_else(ProviderError::invalid_token)?;
        if self.start.elapsed().saturating_sub(Duration::from_millis(u64::from_be_bytes(*millis)))
            > self.validity
        {
            return Err(ProviderError::page_token_expired());
        }
        match rest.split_first() {
            Some((&KEPT, number)) => {
                self.kept.lock().get(number).ok_or_else(ProviderError::page_token_expired)
            }
            Some((_, text)) => String::from_utf8(text.to_vec()).map_err(|_| ProviderError::invalid_token()),
            None => Err(ProviderError::invalid_token()),
        }
    }

    /// The token of the next page, which represents the cloud's own; empty after the last page.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers to sign with.
    pub fn seal(&self, request: &impl PageRequest, cloud_token: &str) -> Result<String> {
        if cloud_token.is_empty() {
            return Ok(String::new());
        }
        let key =
            self.key.as_ref().ok_or_else(|| ProviderError::internal("no random numbers to sign with"))?;
        let now = self.start.elapsed();
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut claim = millis.to_be_bytes().to_vec();
        if cloud_token.len() <= LONGEST_WITHIN {
            claim.push(WITHIN);
            claim.extend(cloud_token.as_bytes());
        } else {
            claim.push(KEPT);
            claim.extend(self.kept.lock().keep(cloud_token, now, self.validity).to_be_bytes());
        }
        let signature = hmac::sign(key, &signed(request, &claim));
        Ok(URL_SAFE_NO_PAD.encode([signature.as_ref(), &claim].concat()))
    }

    /// The requested page of `items`, and the token of the next one. Keys are unique and stable for the life
    /// of an item; pages follow their order, so that items that come and go in between never hide others.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`] and [`Self::seal`].
    pub fn page<T>(
        &self,
        request: &impl PageRequest,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, String)> {
        let after = self.open(request)?;
        let is_first = request.token().is_empty();
        let size = usize::try_from(request.size()).ok().filter(|size| *size > 0);
        let size = size.unwrap_or(defaults::MAX_PAGE_SIZE as usize);
        let keyed = items.into_iter().map(|item| (key(&item), item));
        let mut rest: Vec<_> = keyed.filter(|(key, _)| is_first || *key > after).collect();
        let more = rest.len() > size;
        if more {
            // Only the items of the page need to be sorted.
            rest.select_nth_unstable_by(size, |a, b| a.0.cmp(&b.0));
            rest.truncate(size);
        }
        rest.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let next = match rest.last() {
            Some((last, _)) if more => self.seal(request, last)?,
            _ => String::new(),
        };
        Ok((rest.into_iter().map(|(_, item)| item).collect(), next))
    }
}

impl Kept {
    fn get(&self, number: &[u8]) -> Option<String> {
        let number = u64::from_be_bytes(number.try_into().ok()?);
        self.texts.get(&number).map(|(_, text)| text.clone())
    }

    fn keep(&mut self, text: &str, now: Duration, validity: Duration) -> u64 {
        self.last += 1;
        self.texts.retain(|_, (issued, _)| now.saturating_sub(*issued) <= validity);
        if self.texts.len() >= MOST_KEPT {
            self.texts.pop_first();
        }
        self.texts.insert(self.last, (now, text.to_owned()));
        self.last
    }
}

/// The signed text: valid for this list and cluster only.
fn signed<R: PageRequest>(request: &R, claim: &[u8]) -> Vec<u8> {
    let uid = request.cluster().map_or("", |cluster| &cluster.uid);
    [R::LIST.as_bytes(), b" ", uid.as_bytes(), b"\0", claim].concat()
}
