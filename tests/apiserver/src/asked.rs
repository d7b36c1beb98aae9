//! One request, as received and as parsed.

use std::{fmt, sync::Arc};

use http::{Method, Request, header};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::Value;

/// What a request does, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// All objects of a kind.
    List,
    /// Changes, optionally after all objects of a kind.
    Watch,
    /// A new object.
    Create,
    /// The whole object.
    Update,
    /// Part of an object.
    Patch,
    /// Deletes the object.
    Delete,
    /// Deletes all objects of a collection.
    DeleteCollection,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        })
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The client that sent it.
    pub client: Arc<str>,
    /// The verb; none if the path is not that of a resource.
    pub verb: Option<Verb>,
    /// The HTTP method.
    pub method: Method,
    /// The path alone.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The API group of the path; empty for the core group.
    pub group: String,
    /// `nodes` and so on; empty if the path is not that of a resource.
    pub resource: String,
    /// Empty for cluster-scoped objects and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
    /// The content type of the body.
    pub content_type: String,
    /// The content types that the client accepts.
    pub accept: String,
    pub body: Bytes,
}

impl Asked {
    pub(crate) async fn read(client: Arc<str>, request: Request<Body>) -> Result<Self, kube::Error> {
        let (head, body) = request.into_parts();
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let body = body.collect_bytes().await?;
        let mut asked = Self {
            client,
            verb: None,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            group: String::new(),
            resource: String::new(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            content_type: header(header::CONTENT_TYPE).to_owned(),
            accept: header(header::ACCEPT).to_owned(),
            body,
            method: head.method,
        };
        asked.understand();
        Ok(asked)
    }

    fn understand(&mut self) {
        let parts: Vec<String> =
            self.path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !matches!(rest[0], "status") => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => return,
        };
        self.group = group.to_owned();
        self.namespace = namespace.to_owned();
        self.resource = resource.to_owned();
        self.name = name.to_owned();
        self.subresource = subresource.to_owned();
        self.verb = match (self.method.as_str(), name.is_empty()) {
            ("GET", false) => Some(Verb::Get),
            ("GET", true) if self.is("watch") => Some(Verb::Watch),
            ("GET", true) => Some(Verb::List),
            ("POST", true) => Some(Verb::Create),
            ("PUT", false) => Some(Verb::Update),
            ("PATCH", false) => Some(Verb::Patch),
            ("DELETE", false) => Some(Verb::Delete),
            ("DELETE", true) => Some(Verb::DeleteCollection),
            _ => None,
        };
    }

    /// The value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
            .filter(|value| !value.is_empty())
    }

    /// Whether a parameter is true.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.parameter(name).is_some_and(|value| matches!(value.as_str(), "true" | "1"))
    }

    /// The body as JSON, null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Method and path as one text, for assertions.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Verb, resource and subresource as one text: `patch services/status`.
    pub fn word(&self) -> String {
        let verb = self.verb.map_or_else(|| self.method.to_string(), |verb| verb.to_string());
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{verb} {}{slash}{}", self.resource, self.subresource)
    }
}
