//! What a request must contain to be understood. The checks are made from the options of its fields (`options.proto`).

use std::{collections::HashSet, fmt};

use crate::{method::Rpc, v1alpha1};

/// A request of `ccm.cloudprovider.v1alpha1`: what all of them share, as far as it has that.
#[allow(private_bounds, reason = "only what is generated is a request")]
pub trait RequestMessage: Shaped + Rpc {
    /// The cluster on whose behalf the host calls.
    fn cluster(&self) -> Option<&v1alpha1::ClusterRef> {
        None
    }

    /// The leader's; only mutations have it.
    fn fencing(&self) -> Option<&v1alpha1::Fencing> {
        None
    }

    /// The number of items of a batch.
    fn items(&self) -> Option<usize> {
        None
    }

    /// How many entries a page may have.
    fn page_size(&mut self) -> Option<&mut i32> {
        None
    }

    /// The set of backends, which may be there by its digest alone.
    fn backends(&mut self) -> Option<&mut v1alpha1::BackendSet> {
        None
    }

    /// Checks the shape. In `limits` no limit is left to its default.
    ///
    /// # Errors
    ///
    /// The first part that has another shape.
    fn check_shape(&self, limits: &v1alpha1::Limits) -> Result<(), Misshapen> {
        self.check(&Path { limits, before: None, field: "", entry: None })
    }
}

/// How a request differs from the shape that it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misshapen {
    /// INVALID_ARGUMENT_SHAPE.
    Field {
        /// For example `items[3].service.ref.uid`.
        path: String,
        /// For example "is missing".
        why: String,
    },
    /// BATCH_TOO_LARGE.
    TooMany {
        /// As many as the request has.
        items: usize,
        /// As many as it may have.
        max: u32,
    },
}

/// A message that a request consists of.
pub(crate) trait Shaped {
    fn check(&self, at: &Path<'_>) -> Result<(), Misshapen>;
}

/// The way to a message from the request.
pub(crate) struct Path<'a> {
    limits: &'a v1alpha1::Limits,
    before: Option<&'a Path<'a>>,
    field: &'static str,
    entry: Option<usize>,
}

impl Path<'_> {
    fn field(&self, field: &'static str) -> Path<'_> {
        Path { limits: self.limits, before: Some(self), field, entry: None }
    }

    fn entry(&self, field: &'static str, entry: usize) -> Path<'_> {
        Path { limits: self.limits, before: Some(self), field, entry: Some(entry) }
    }

    fn wrong<T>(&self, field: &'static str, why: impl Into<String>) -> Result<T, Misshapen> {
        Err(Misshapen::Field { path: self.field(field).to_string(), why: why.into() })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(before) = self.before else { return Ok(()) };
        let dot = if before.before.is_some() { "." } else { "" };
        write!(out, "{before}{dot}{}", self.field)?;
        self.entry.map_or(Ok(()), |entry| write!(out, "[{entry}]"))
    }
}

fn present(at: &Path<'_>, field: &'static str, is_there: bool) -> Result<(), Misshapen> {
    if is_there { Ok(()) } else { at.wrong(field, "is missing") }
}

fn text(
    at: &Path<'_>,
    field: &'static str,
    value: &str,
    required: bool,
    most: usize,
) -> Result<(), Misshapen> {
    if required && value.is_empty() {
        return at.wrong(field, "is missing");
    }
    if most > 0 && value.len() > most {
        return at.wrong(field, format!("has more than {most} bytes"));
    }
    Ok(())
}

fn not_negative(at: &Path<'_>, field: &'static str, value: i32) -> Result<(), Misshapen> {
    if value < 0 { at.wrong(field, "is negative") } else { Ok(()) }
}

fn list(at: &Path<'_>, field: &'static str, items: usize, required: bool, max: u32) -> Result<(), Misshapen> {
    if required && items == 0 {
        return at.wrong(field, "is empty");
    }
    if items > max as usize {
        return Err(Misshapen::TooMany { items, max });
    }
    Ok(())
}

fn empty_with(
    at: &Path<'_>,
    field: &'static str,
    items: usize,
    set: bool,
    with: &str,
) -> Result<(), Misshapen> {
    if set && items > 0 { at.wrong(field, format!("is not empty although {with} is set")) } else { Ok(()) }
}

fn unique<'a>(
    at: &Path<'_>,
    field: &'static str,
    path: &str,
    values: impl Iterator<Item = &'a str>,
) -> Result<(), Misshapen> {
    let mut seen = HashSet::new();
    for (entry, value) in values.enumerate() {
        if !seen.insert(value) {
            let path = format!("{}.{path}", at.entry(field, entry));
            return Err(Misshapen::Field { path, why: "is a duplicate".to_owned() });
        }
    }
    Ok(())
}

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));
