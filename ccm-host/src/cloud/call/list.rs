//! Walks paged lists to their end.
//!
//! In: the request for a page, and how to check one item. Out: all items, and whether the list is complete. A walk
//! holds its session, so it ends with the process that it began with; an expired token restarts it.

use std::collections::{HashMap, HashSet};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::method::Rpc;
use crate::cloud::{
    CloudError, ErrorReason,
    check::{Findings, rule, shown},
    connection::{Link, session::Session},
    status,
};

/// A list with more pages counts as endless.
const MOST_PAGES: usize = 10_000;
/// No cluster has more of anything.
const MOST_ITEMS: usize = 500_000;
/// Maximum restarts of a walk after a refused token.
const MOST_RESTARTS: u32 = 3;

/// A list that is fetched page by page.
pub(crate) struct List<Request, Open, Read> {
    /// The request for a page.
    pub(crate) request: Request,
    /// Takes a page out of its answer.
    pub(crate) open: Open,
    /// Checks one item and tells its key; `None` means that it is unusable and missing from the list.
    pub(crate) read: Read,
}

/// Which page to fetch.
pub(crate) struct At {
    pub(crate) cluster: Option<pb::ClusterRef>,
    pub(crate) page_size: i32,
    pub(crate) page_token: String,
}

pub(crate) struct Page<G> {
    pub(crate) items: Vec<G>,
    pub(crate) next: String,
    pub(crate) unreachable: Vec<pb::UnreachableLocation>,
}

/// The result of a walk.
pub(crate) struct Walked<I> {
    /// In order of arrival, without duplicates.
    pub(crate) items: Vec<I>,
    pub(crate) complete: bool,
    pub(crate) unreachable: Vec<(String, CloudError)>,
    /// One sentence for each thing dropped or corrected.
    pub(crate) rejected: Vec<String>,
}

impl<Request, Open, Read> List<Request, Open, Read> {
    /// Fetches all pages.
    pub(crate) async fn walk<Q, G, I>(&self, link: &Link) -> Result<Walked<I>, CloudError>
    where
        Q: Rpc,
        Request: Fn(At) -> Q,
        Open: Fn(&Session, Q::Answer) -> Page<G>,
        Read: Fn(G, &mut Findings) -> Option<(String, I)>,
    {
        let session = link.session(Q::METHOD)?;
        let mut restarts = 0;
        loop {
            match self.once(link, &session).await {
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

    async fn once<Q, G, I>(&self, link: &Link, session: &Session) -> Result<Walked<I>, CloudError>
    where
        Q: Rpc,
        Request: Fn(At) -> Q,
        Open: Fn(&Session, Q::Answer) -> Page<G>,
        Read: Fn(G, &mut Findings) -> Option<(String, I)>,
    {
        let mut walk = Walk::new(link, Q::METHOD.name);
        let mut tokens = HashSet::new();
        let mut token = String::new();
        let mut page_size = page_size(session);
        loop {
            let at = At { cluster: Some(link.cluster()), page_size, page_token: token.clone() };
            let answer = {
                let _permit = link.permit(Q::METHOD).await?;
                link.call(session, None, (self.request)(at)).await
            };
            let page = match answer {
                Ok(answer) => (self.open)(session, answer),
                // Continue the same walk with smaller pages.
                Err(error) if error.is_too_large() && page_size > 1 => {
                    page_size /= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            token = walk.take(page, &self.read);
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
}

fn is_about_token(error: &CloudError) -> bool {
    error.is(ErrorReason::PageTokenExpired) || error.is(ErrorReason::InvalidToken)
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
    found: HashMap<String, I>,
    order: Vec<String>,
    unreachable: Vec<(String, CloudError)>,
    rejected: Vec<String>,
    broken: bool,
}

impl<'a, I> Walk<'a, I> {
    fn new(link: &'a Link, method: &'static str) -> Self {
        Self {
            link,
            method,
            found: HashMap::new(),
            order: Vec::new(),
            unreachable: Vec::new(),
            rejected: Vec::new(),
            broken: false,
        }
    }

    /// Takes in a page and returns the token of the next one.
    fn take<G>(&mut self, page: Page<G>, read: impl Fn(G, &mut Findings) -> Option<(String, I)>) -> String {
        for given in page.items {
            self.link.metrics.checked(|findings| {
                match read(given, findings) {
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
                self.rejected.append(&mut findings.rejected);
            });
        }
        for part in page.unreachable {
            let error = self.link.metrics.checked(|findings| {
                if part.error.is_none() {
                    findings.count(rule::LIST_UNREACHABLE);
                }
                status::item_error(self.method, part.error.unwrap_or_default(), findings)
            });
            self.unreachable.push((shown(&part.location, 253), error));
        }
        page.next
    }

    fn end(mut self) -> Walked<I> {
        Walked {
            items: self.order.iter().filter_map(|key| self.found.remove(key)).collect(),
            complete: !self.broken && self.unreachable.is_empty(),
            unreachable: self.unreachable,
            rejected: self.rejected,
        }
    }
}
