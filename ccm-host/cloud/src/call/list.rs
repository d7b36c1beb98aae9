//! Walks paged lists to their end.
//!
//! In: the request, and how to check one item. Out: all items, and whether the list is complete. A walk
//! holds its session, so it ends with the process that it began with; a token that leads nowhere restarts it.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use prost::Message as _;

use super::answer::takes;
use crate::findings::{Findings, rule, shown};
use crate::{
    CloudError, ErrorReason, Listed,
    connection::{Link, session::Session},
    method::Rpc,
};

/// A list with more pages counts as endless.
const MOST_PAGES: usize = 10_000;
/// No cluster has more of anything.
const MOST_ITEMS: usize = 500_000;
/// The texts of all pages of a list and all their parts take no more than this once decoded: a provider must not fill the
/// memory of the others.
const MOST_BYTES: usize = 256 << 20;
/// A list keeps no more sentences about what it lacks.
const MOST_REJECTED: usize = 100;
/// A list keeps no more of the locations that could not be listed.
const MOST_UNREACHABLE: usize = 1_000;
/// The contract's limit.
const LONGEST_TOKEN: usize = 8 << 10;
/// Maximum restarts of a walk after a refused token.
const MOST_RESTARTS: u32 = 3;

/// An RPC that answers a list, page by page.
pub(crate) trait PagedRpc: Rpc + Clone {
    type Item;

    /// Asks for this page.
    fn turn_to(&mut self, cluster: pb::ClusterRef, page_size: i32, page_token: String);

    fn open(answer: Self::Answer) -> Page<Self::Item>;
}

pub(crate) struct Page<G> {
    items: Vec<G>,
    next: String,
    unreachable: Vec<pb::UnreachableLocation>,
}

macro_rules! paged {
    ($(|$page:ident| $request:ty => $item:ty: $items:expr, $unreachable:expr;)*) => {$(
        impl PagedRpc for $request {
            type Item = $item;

            fn turn_to(&mut self, cluster: pb::ClusterRef, page_size: i32, page_token: String) {
                self.cluster = Some(cluster);
                self.page_size = page_size;
                self.page_token = page_token;
            }

            fn open($page: Self::Answer) -> Page<$item> {
                Page { items: $items, next: $page.next_page_token, unreachable: $unreachable }
            }
        }
    )*};
}

paged! {
    |page| pb::ListInstancesRequest => pb::ListedInstance: page.instances, page.unreachable;
    |page| pb::ListLoadBalancersRequest => pb::LoadBalancer: page.load_balancers, page.unreachable;
    |page| pb::ListRoutesRequest => pb::Route: page.routes, page.unreachable;
    |page| pb::ListClustersRequest => String: page.names, Vec::new();
}

/// Fetches all pages. `is_meant` filters out irrelevant items; `read` checks one item and returns its key,
/// or `None` if it is unusable and missing from the list.
pub(crate) async fn walk<Q: PagedRpc, I>(
    link: &Link,
    request: Q,
    is_meant: impl Fn(&Q::Item) -> bool,
    read: impl Fn(&Session, Q::Item, &mut Findings) -> Option<(String, I)>,
) -> Result<Listed<I>, CloudError> {
    let session = link.session(Q::METHOD)?;
    let mut restarts = 0;
    loop {
        let read = |given, findings: &mut Findings| read(&session, given, findings);
        match once(link, &session, request.clone(), &is_meant, read).await {
            Ok(mut listed) => {
                listed.complete &= restarts == 0;
                return Ok(listed);
            }
            Err(error) if restarts < MOST_RESTARTS && error.is(ErrorReason::InvalidToken) => {
                restarts += 1;
                link.metrics.violation(rule::TOKEN_ISSUED);
            }
            Err(error) => return Err(error),
        }
    }
}

async fn once<Q: PagedRpc, I>(
    link: &Link,
    session: &Session,
    mut request: Q,
    is_meant: impl Fn(&Q::Item) -> bool,
    read: impl Fn(Q::Item, &mut Findings) -> Option<(String, I)>,
) -> Result<Listed<I>, CloudError> {
    let mut walk = Walk::new(link, Q::METHOD.name);
    let mut tokens = HashSet::new();
    let mut token = String::new();
    let mut page_size = page_size(session);
    loop {
        request.turn_to(link.cluster(), page_size, token.clone());
        let answer = {
            let _permit = link.permit(Q::METHOD).await?;
            link.call(session, None, request.clone()).await
        };
        let page = match answer {
            Ok(answer) => {
                let wire = answer.encode_to_vec();
                walk.bytes += wire.len() + takes(Q::METHOD.path, &wire);
                Q::open(answer)
            }
            // Continue the same walk with smaller pages.
            Err(error) if error.is_too_large() && page_size > 1 => {
                page_size /= 2;
                continue;
            }
            Err(error) => return Err(error),
        };
        token = walk.take(page, &is_meant, &read);
        if token.is_empty() {
            break;
        }
        if token.len() > LONGEST_TOKEN {
            link.metrics.violation(rule::TOKEN_ISSUED);
            walk.listed.complete = false;
            break;
        }
        if !tokens.insert(token.clone()) || tokens.len() > MOST_PAGES || walk.is_too_long() {
            link.metrics.violation(rule::PAGE_WALK_ENDS);
            walk.listed.complete = false;
            break;
        }
    }
    Ok(walk.listed)
}

fn page_size(session: &Session) -> i32 {
    let most = match session.limits.max_page_size {
        0 => defaults::MAX_PAGE_SIZE,
        most => most,
    };
    i32::try_from(most).unwrap_or(i32::MAX)
}

struct Walk<'a, I> {
    link: &'a Link,
    method: &'static str,
    listed: Listed<I>,
    /// Where the item with each key is.
    places: HashMap<String, usize>,
    /// What was read of it, rejected or not.
    bytes: usize,
    read: usize,
}

impl<'a, I> Walk<'a, I> {
    fn new(link: &'a Link, method: &'static str) -> Self {
        let listed =
            Listed { items: Vec::new(), complete: true, unreachable: Vec::new(), rejected: Vec::new() };
        Self { link, method, listed, places: HashMap::new(), bytes: 0, read: 0 }
    }

    fn is_too_long(&self) -> bool {
        self.read > MOST_ITEMS || self.bytes > MOST_BYTES
    }

    /// Takes in a page and returns the token of the next one.
    fn take<G>(
        &mut self,
        page: Page<G>,
        is_meant: impl Fn(&G) -> bool,
        read: impl Fn(G, &mut Findings) -> Option<(String, I)>,
    ) -> String {
        self.read += page.items.len();
        let listed = &mut self.listed;
        for given in page.items.into_iter().filter(is_meant) {
            self.link.metrics.checked(|findings| {
                match read(given, findings) {
                    None => listed.complete = false,
                    Some((key, item)) => match self.places.entry(key) {
                        Entry::Vacant(place) => {
                            place.insert(listed.items.len());
                            listed.items.push(item);
                        }
                        // Two items with one key, or one that moved between pages.
                        Entry::Occupied(place) => {
                            findings.count(rule::LIST_KEYS);
                            listed.complete = false;
                            listed.items[*place.get()] = item;
                        }
                    },
                }
                let room = MOST_REJECTED - listed.rejected.len();
                listed.rejected.extend(findings.rejected.drain(..).take(room));
            });
        }
        listed.complete &= page.unreachable.is_empty();
        let room = MOST_UNREACHABLE - listed.unreachable.len();
        for part in page.unreachable.into_iter().take(room) {
            let error = self.link.metrics.checked(|findings| {
                if part.error.is_none() {
                    findings.count(rule::LIST_UNREACHABLE);
                }
                CloudError::of_item(self.method, part.error.unwrap_or_default(), findings)
            });
            listed.unreachable.push((shown(&part.location, 253), error));
        }
        page.next
    }
}
