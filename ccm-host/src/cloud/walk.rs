//! Walks paged lists to their end.
//!
//! In: a list that can fetch one page and check one item. Out: all items, and whether the list is complete. A walk
//! holds its session, so it ends with the process that it began with; an expired token restarts it.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::{
    CloudError, ErrorReason,
    check::{self, Findings, rule},
    link::Link,
    method::Method,
    session::Session,
    status,
};

/// A walk with more pages is taken as endless.
const MOST_PAGES: usize = 10_000;
/// More than the largest cluster has of anything.
const MOST_ITEMS: usize = 500_000;
/// Maximum restarts of a walk after a refused token.
const MOST_RESTARTS: u32 = 3;

/// A list that is fetched page by page.
pub(super) trait Paged: Sync {
    /// An item as received.
    type Given;
    /// Unique per item.
    type Key: Clone + Eq + Hash;
    /// An item after its checks.
    type Item;

    fn method(&self) -> &'static Method;

    /// Fetches one page.
    fn page(
        &self,
        link: &Link,
        session: &Session,
        page_size: i32,
        page_token: String,
    ) -> impl Future<Output = Result<Page<Self::Given>, CloudError>> + Send;

    /// Checks one item; `None` means that it is unusable and missing from the list.
    fn read(&self, given: Self::Given, findings: &mut Findings) -> Option<(Self::Key, Self::Item)>;
}

pub(super) struct Page<G> {
    pub(super) items: Vec<G>,
    pub(super) next: String,
    pub(super) unreachable: Vec<pb::UnreachableLocation>,
}

/// The result of a walk.
pub(super) struct Walked<I> {
    /// In order of arrival, without duplicates.
    pub(super) items: Vec<I>,
    pub(super) complete: bool,
    pub(super) unreachable: Vec<(String, CloudError)>,
    /// One sentence for each thing dropped or corrected.
    pub(super) rejected: Vec<String>,
}

pub(super) async fn walk<P: Paged>(link: &Link, list: &P) -> Result<Walked<P::Item>, CloudError> {
    let session = link.session(list.method())?;
    let mut restarts = 0;
    loop {
        match once(link, &session, list).await {
            Ok(mut walked) => {
                walked.complete &= restarts == 0;
                return Ok(walked);
            }
            Err(error) if restarts < MOST_RESTARTS && is_about_token(&error) => {
                restarts += 1;
                if error.is(ErrorReason::InvalidToken) {
                    link.metrics.violation(rule::TOKEN_ISSUED);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_about_token(error: &CloudError) -> bool {
    error.is(ErrorReason::PageTokenExpired) || error.is(ErrorReason::InvalidToken)
}

async fn once<P: Paged>(link: &Link, session: &Session, list: &P) -> Result<Walked<P::Item>, CloudError> {
    let mut walk = Walk::new(link, list);
    let mut tokens = HashSet::new();
    let mut token = String::new();
    let mut size = page_size(session);
    loop {
        let page = match list.page(link, session, size, token.clone()).await {
            Ok(page) => page,
            // Continue the same walk with smaller pages.
            Err(error) if error.is_too_large() && size > 1 => {
                size /= 2;
                continue;
            }
            Err(error) => return Err(error),
        };
        token = walk.take(page);
        if token.is_empty() {
            break;
        }
        if !tokens.insert(token.clone()) || tokens.len() > MOST_PAGES || walk.found.len() > MOST_ITEMS {
            link.metrics.violation(rule::PAGE_WALK_ENDS);
            walk.broken = true;
            break;
        }
    }
    Ok(walk.end())
}

fn page_size(session: &Session) -> i32 {
    let most = match session.limits.max_page_size {
        0 => defaults::MAX_PAGE_SIZE,
        most => most,
    };
    i32::try_from(most).unwrap_or(i32::MAX)
}

struct Walk<'a, P: Paged> {
    link: &'a Link,
    list: &'a P,
    found: HashMap<P::Key, P::Item>,
    order: Vec<P::Key>,
    unreachable: Vec<(String, CloudError)>,
    rejected: Vec<String>,
    broken: bool,
}

impl<'a, P: Paged> Walk<'a, P> {
    fn new(link: &'a Link, list: &'a P) -> Self {
        Self {
            link,
            list,
            found: HashMap::new(),
            order: Vec::new(),
            unreachable: Vec::new(),
            rejected: Vec::new(),
            broken: false,
        }
    }

    /// Takes in a page and returns the token of the next one.
    fn take(&mut self, page: Page<P::Given>) -> String {
        for given in page.items {
            let mut findings = Findings::default();
            match self.list.read(given, &mut findings) {
                None => self.broken = true,
                Some((key, item)) => {
                    if self.found.insert(key.clone(), item).is_some() {
                        // Two items with one key, or one that moved between pages.
                        findings.count(rule::LIST_KEYS);
                        self.broken = true;
                    } else {
                        self.order.push(key);
                    }
                }
            }
            self.link.metrics.findings(&findings);
            self.rejected.append(&mut findings.rejected);
        }
        for part in page.unreachable {
            let mut findings = Findings::default();
            if part.error.is_none() {
                findings.count(rule::LIST_UNREACHABLE);
            }
            let error = part.error.unwrap_or_default();
            let error = status::item_error(self.list.method().name, error, &mut findings);
            self.link.metrics.findings(&findings);
            self.unreachable.push((check::shown(&part.location, 253), error));
        }
        page.next
    }

    fn end(mut self) -> Walked<P::Item> {
        Walked {
            items: self.order.iter().filter_map(|key| self.found.remove(key)).collect(),
            complete: !self.broken && self.unreachable.is_empty(),
            unreachable: self.unreachable,
            rejected: self.rejected,
        }
    }
}
