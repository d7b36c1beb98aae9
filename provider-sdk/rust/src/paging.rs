//! Pages of a list, with tokens of the contract's form whatever the cloud's own tokens look like.
//!
//! In: all items of a list, or the page token of a cloud that pages itself. Out: a token of at most 8 KiB, which names its
//! list and its cluster, so that no other list takes it. It is no secret: only the host has it.

#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cloudprovider_proto::defaults;

use crate::proto::{
    ClusterRef, ListClustersRequest, ListInstancesRequest, ListLoadBalancersRequest, ListRoutesRequest,
};
use crate::{ProviderError, Result};

/// The contract's limit.
const LONGEST: usize = 8 << 10;

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

/// The cloud's own token from which the request continues; empty for the first page. Call it before querying the cloud.
///
/// # Errors
///
/// [`ProviderError::invalid_token`]. Return it, too, if the cloud takes its own token no more.
pub fn open(request: &impl PageRequest) -> Result<String> {
    if request.token().is_empty() {
        return Ok(String::new());
    }
    let read = || {
        let token = URL_SAFE_NO_PAD.decode(request.token()).ok()?;
        String::from_utf8(token.strip_prefix(&*owner(request))?.to_vec()).ok()
    };
    read().ok_or_else(ProviderError::invalid_token)
}

/// The token of the next page, which stands for the cloud's own; empty after the last page.
///
/// # Errors
///
/// The cloud's token is too long for one of the contract.
pub fn seal(request: &impl PageRequest, cloud_token: &str) -> Result<String> {
    if cloud_token.is_empty() {
        return Ok(String::new());
    }
    let token = URL_SAFE_NO_PAD.encode([&*owner(request), cloud_token.as_bytes()].concat());
    if token.len() > LONGEST {
        let length = cloud_token.len();
        return Err(ProviderError::internal(format!("the cloud's page token has {length} bytes")));
    }
    Ok(token)
}

/// The requested page of `items`, and the token of the next one. Keys are unique and stable for the life of an item; pages
/// follow their order, so that items that come and go in between never hide others.
///
/// # Errors
///
/// As of [`open`] and [`seal`].
pub fn page<T>(
    request: &impl PageRequest,
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> String,
) -> Result<(Vec<T>, String)> {
    let after = open(request)?;
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
        Some((last, _)) if more => seal(request, last)?,
        _ => String::new(),
    };
    Ok((rest.into_iter().map(|(_, item)| item).collect(), next))
}

/// What a token begins with: its list and its cluster.
fn owner<R: PageRequest>(request: &R) -> Vec<u8> {
    let uid = request.cluster().map_or("", |cluster| &cluster.uid);
    format!("{} {uid}\0", R::LIST).into_bytes()
}
