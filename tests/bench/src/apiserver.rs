//! Requests to the apiserver, by its own count.

use std::collections::BTreeMap;

use anyhow::Result;
use test_cluster::{Cluster, metrics};

/// Requests by verb and resource.
pub(crate) type Requests = BTreeMap<(String, String), u64>;

/// Node watches that the apiserver has closed because their client, or it itself, was too slow.
pub(crate) async fn closed_node_watches(cluster: &Cluster) -> Result<u64> {
    let text = exposition(cluster).await?;
    Ok(metrics::sum(&text, "apiserver_terminated_watchers_total", &["resource=\"nodes\""]) as u64)
}

async fn exposition(cluster: &Cluster) -> Result<String> {
    Ok(cluster.client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?)
}

/// All requests so far.
pub(crate) async fn requests(cluster: &Cluster) -> Result<Requests> {
    let text = exposition(cluster).await?;
    let mut requests = Requests::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let resource = match (label(labels, "resource"), label(labels, "subresource")) {
            (Some(resource), Some(sub)) if !sub.is_empty() => format!("{resource}/{sub}"),
            (Some(resource), _) => resource.to_owned(),
            (None, _) => continue,
        };
        let verb = label(labels, "verb").unwrap_or_default().to_owned();
        *requests.entry((verb, resource)).or_default() += value.trim().parse::<f64>()? as u64;
    }
    Ok(requests)
}

/// The requests since `before`, of the kinds that a host causes.
pub(crate) fn since(before: &Requests, after: &Requests) -> Requests {
    after
        .iter()
        .map(|(key, count)| (key.clone(), count - before.get(key).copied().unwrap_or_default()))
        .filter(|((_, resource), count)| {
            *count > 0
                && ["nodes", "services", "events", "namespaces"].iter().any(|kind| resource.starts_with(kind))
        })
        .collect()
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    // "resource" is also the end of "subresource".
    if !matches!(labels.as_bytes().get(start - name.len() - 3), Some(b'{' | b',')) {
        let rest = &labels[start..];
        return label(rest, name);
    }
    labels[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn subresource_is_not_resource() {
        let labels =
            "apiserver_request_total{code=\"200\",subresource=\"status\",resource=\"nodes\",verb=\"PATCH\"";
        assert_eq!(
            [label(labels, "resource"), label(labels, "subresource")],
            [Some("nodes"), Some("status")]
        );
    }
}
