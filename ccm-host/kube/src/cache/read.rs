//! Reads the answers of the apiserver object by object, so that one object that cannot be read is one object.
//!
//! In: the text of a list, the lines of a watch. Out: each object, or the identity of one that cannot be read and why.
//! [`super::follow`] decides what to do with it.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, Stream, StreamExt as _};
use http::header::{ACCEPT_ENCODING, HeaderValue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Client, api::WatchParams, core::Status};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::wire::or_default;

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Client(::kube::Error),
    /// As an answer, or in the middle of a watch.
    #[error("the apiserver refuses: {} ({})", .0.message, .0.code)]
    Refused(Box<Status>),
    #[error("the apiserver said nothing for {0:?}")]
    Silent(Duration),
    #[error("the watch ended before it brought anything")]
    Short,
    #[error("the list broke off")]
    BrokenOff(#[source] Option<Box<Failure>>),
    #[error("the list has no resource version")]
    NoVersion,
    #[error("the apiserver is at version {now}, before {seen}: it was restored from a backup")]
    Restored { now: String, seen: String },
    #[error("the list lacks {0}, which exists: it is older than what is known")]
    Stale(String),
}

impl From<::kube::Error> for Failure {
    fn from(error: ::kube::Error) -> Self {
        match error {
            ::kube::Error::Api(status) => Self::Refused(status),
            other => Self::Client(other),
        }
    }
}

impl Failure {
    /// Nobody answered, or the apiserver asked for less load.
    pub(super) fn is_no_answer(&self) -> bool {
        match self {
            Self::Client(_) | Self::Stale(_) => true,
            Self::Refused(status) => status.code == 429,
            _ => false,
        }
    }

    /// Watching from the same version would fail in the same way: it is too old, or the request itself is refused.
    /// Missing permissions, as for a moment after an apiserver starts, would keep it from listing, too.
    pub(super) fn needs_list(&self) -> bool {
        match self {
            Self::NoVersion | Self::Restored { .. } => true,
            Self::Refused(status) => !matches!(status.code, 401 | 403 | 429 | 500..),
            _ => false,
        }
    }
}

/// An object, or one that cannot be read.
pub(super) type Read<W> = Result<W, Unreadable>;

/// An object of which nothing but the metadata can be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) metadata: Identity,
    pub(super) why: serde_json::Error,
}

/// The metadata of which every object has as much.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// An object reduced to its metadata.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) metadata: Identity,
}

/// One event of a watch.
pub(super) enum Event<W> {
    Put(Read<W>),
    Deleted(Read<W>),
    Bookmark { version: String, ends_list: bool },
    Refused(Box<Status>),
}

/// The apiserver's JSON expresses "none" in two ways.
fn said(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn object<W: DeserializeOwned>(text: &RawValue) -> serde_json::Result<Read<W>> {
    match serde_json::from_str(text.get()) {
        Ok(wire) => Ok(Ok(wire)),
        Err(why) => {
            let Named { metadata } = serde_json::from_str(text.get())?;
            Ok(Err(Unreadable { metadata, why }))
        }
    }
}

/// One page of a list.
pub(super) struct ListPage<W> {
    pub(super) items: Vec<Read<W>>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<String>,
    pub(super) version: Option<String>,
}

pub(super) fn page<W: DeserializeOwned>(text: &str) -> serde_json::Result<ListPage<W>> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: ListMeta,
        #[serde(borrow, deserialize_with = "or_default")]
        items: Vec<&'a RawValue>,
    }
    let List { metadata, items } = serde_json::from_str(text)?;
    Ok(ListPage {
        items: items.into_iter().map(object).collect::<serde_json::Result<_>>()?,
        next: metadata.continue_.and_then(said),
        version: metadata.resource_version.and_then(said),
    })
}

pub(super) fn event<W: DeserializeOwned>(line: &str) -> serde_json::Result<Event<W>> {
    #[derive(Deserialize)]
    enum Type {
        #[serde(rename = "ADDED", alias = "MODIFIED")]
        Put,
        #[serde(rename = "DELETED")]
        Deleted,
        #[serde(rename = "BOOKMARK")]
        Bookmark,
        #[serde(rename = "ERROR")]
        Error,
    }
    #[derive(Deserialize)]
    struct Line<'a> {
        r#type: Type,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    /// The annotation that ends the initial events of a streaming list.
    #[derive(Deserialize, Default)]
    struct Annotations {
        #[serde(rename = "k8s.io/initial-events-end")]
        ends_list: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct MarkMeta {
        #[serde(default)]
        resource_version: String,
        #[serde(default, deserialize_with = "or_default")]
        annotations: Annotations,
    }
    #[derive(Deserialize)]
    struct Mark {
        metadata: MarkMeta,
    }
    let Line { r#type, object: text } = serde_json::from_str(line)?;
    Ok(match r#type {
        Type::Put => Event::Put(object(text)?),
        Type::Deleted => Event::Deleted(object(text)?),
        Type::Error => Event::Refused(Box::new(serde_json::from_str(text.get())?)),
        Type::Bookmark => {
            let Mark { metadata } = serde_json::from_str(text.get())?;
            Event::Bookmark {
                version: metadata.resource_version,
                ends_list: metadata.annotations.ends_list.is_some(),
            }
        }
    })
}

/// Opens a watch. Its events end where the connection does.
pub(super) async fn watch<W: DeserializeOwned>(
    client: &Client,
    url: &str,
    params: &WatchParams,
    version: &str,
) -> Result<impl Stream<Item = Result<Event<W>, Failure>> + use<W>, Failure> {
    let request = ::kube::core::Request::new(url).watch(params, version);
    let mut request = request.map_err(|error| Failure::Client(::kube::Error::BuildRequest(error)))?;
    // Since 1.37 the apiserver makes a gzip member of each event, of which the client decodes the first alone.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let lines = client.request_stream(request).await?.lines();
    Ok(lines.filter_map(async |line| match line {
        Ok(line) => match event(&line) {
            Ok(event) => Some(Ok(event)),
            // The last line, where the connection ended in the middle of it.
            Err(error) if error.is_eof() => None,
            Err(error) => Some(Err(Failure::Client(::kube::Error::SerdeError(error)))),
        },
        Err(error) if is_end(&error) => None,
        Err(error) => Some(Err(Failure::Client(::kube::Error::ReadEvents(error)))),
    }))
}

/// Whether a connection just ended, as one does after minutes of a watch.
fn is_end(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_eof = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    error.downcast_ref().is_some_and(is_eof)
        || error.to_string().contains("unexpected EOF during chunk")
        || error.source().is_some_and(is_end)
}
