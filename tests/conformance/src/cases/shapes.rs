//! Requests of a shape that the contract forbids: the rows of `proto/vectors/shapes.json`, which every SDK's own tests read, too.

use std::sync::LazyLock;

use cloudprovider_proto::{
    FILE_DESCRIPTOR_SET, SHAPE_VECTORS, method as rpcs,
    v1alpha1::{Capability, ErrorReason},
};
use futures::future::LocalBoxFuture;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use serde::Deserialize;

use crate::{
    case::{
        Case, Outcome,
        Profile::{
            self, Clusters, Instances, InstancesList, InstancesWatch, LoadBalancers, LoadBalancersList,
            Routes, SshKeys, Volumes,
        },
        Run, Stop,
    },
    provider::in_words,
    target::raw_call,
    trial::{Trial, failed, reason_of, within},
};

const UID: &[&str] = &["cluster-uid-required"];
const SHAPE: &[&str] = &["a required field is missing, or a key is duplicated. Code INVALID_ARGUMENT."];

pub(super) const CASES: &[Case] = &[
    of(
        "SHAPE-01",
        Instances,
        "BatchGetInstances: requests out of shape are refused",
        &Misshapen("BatchGetInstances"),
    ),
    of(
        "SHAPE-02",
        InstancesWatch,
        "WatchInstances: requests out of shape are refused",
        &Misshapen("WatchInstances"),
    ),
    of(
        "SHAPE-03",
        InstancesList,
        "ListInstances: requests out of shape are refused",
        &Misshapen("ListInstances"),
    ),
    of(
        "SHAPE-04",
        SshKeys,
        "AddSshKeyToAllInstances: requests out of shape are refused",
        &Misshapen("AddSshKeyToAllInstances"),
    ),
    of(
        "SHAPE-05",
        LoadBalancers,
        "GetLoadBalancer: requests out of shape are refused",
        &Misshapen("GetLoadBalancer"),
    ),
    of(
        "SHAPE-06",
        LoadBalancers,
        "EnsureLoadBalancer: requests out of shape are refused",
        &Misshapen("EnsureLoadBalancer"),
    ),
    of(
        "SHAPE-07",
        LoadBalancers,
        "BatchUpdateLoadBalancers: requests out of shape are refused",
        &Misshapen("BatchUpdateLoadBalancers"),
    ),
    of(
        "SHAPE-08",
        LoadBalancers,
        "DeleteLoadBalancer: requests out of shape are refused",
        &Misshapen("DeleteLoadBalancer"),
    ),
    of(
        "SHAPE-09",
        LoadBalancersList,
        "ListLoadBalancers: requests out of shape are refused",
        &Misshapen("ListLoadBalancers"),
    ),
    of("SHAPE-10", Routes, "ListRoutes: requests out of shape are refused", &Misshapen("ListRoutes")),
    of(
        "SHAPE-11",
        Routes,
        "BatchEnsureRoutes: requests out of shape are refused",
        &Misshapen("BatchEnsureRoutes"),
    ),
    of(
        "SHAPE-12",
        Routes,
        "BatchDeleteRoutes: requests out of shape are refused",
        &Misshapen("BatchDeleteRoutes"),
    ),
    of(
        "SHAPE-13",
        Volumes,
        "BatchGetVolumeLabels: requests out of shape are refused",
        &Misshapen("BatchGetVolumeLabels"),
    ),
    of("SHAPE-14", Clusters, "ListClusters: requests out of shape are refused", &Misshapen("ListClusters")),
    of(
        "SHAPE-15",
        Clusters,
        "GetControlPlaneEndpoint: requests out of shape are refused",
        &Misshapen("GetControlPlaneEndpoint"),
    ),
    of("SHAPE-16", LoadBalancers, "Lead: requests out of shape are refused", &Misshapen("Lead"))
        .capability(Capability::Leadership),
];

const fn of(id: &'static str, profile: Profile, title: &'static str, run: &'static dyn Run) -> Case {
    Case::new(id, profile, title, UID, run).words(SHAPE)
}

/// A row, of which only those with a reason are for a provider that runs: the others would do something.
#[derive(Debug, Deserialize)]
struct Row {
    message: String,
    request: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    field: String,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| serde_json::from_str(SHAPE_VECTORS).unwrap_or_default());
static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).ok());

fn method(rpc: &str) -> Option<MethodDescriptor> {
    let services = POOL.as_ref()?.services();
    services.flat_map(|service| service.methods().collect::<Vec<_>>()).find(|method| method.name() == rpc)
}

/// The request of a row: `'$65'` stands for a text of 65 bytes.
fn read(method: &MethodDescriptor, row: &Row) -> Option<DynamicMessage> {
    let mut text = String::new();
    for (at, part) in row.request.split("'$").enumerate() {
        if at == 0 {
            text.push_str(part);
        } else {
            let (count, rest) = part.split_once('\'')?;
            text.push_str(&format!("'{}'{rest}", "x".repeat(count.parse().ok()?)));
        }
    }
    DynamicMessage::parse_text_format(method.input(), &text).ok()
}

/// Replaces the text at this path, if there is one. One that is too long is what the row is about.
fn replace(message: &mut DynamicMessage, path: &[&str], text: &str) {
    let Some((field, rest)) = path.split_first() else { return };
    if !message.has_field_by_name(field) {
        return;
    }
    let Some(found) = message.get_field_by_name_mut(field) else { return };
    match found {
        Value::String(found) if found.len() <= text.len() => text.clone_into(found),
        Value::Message(inside) => replace(inside, rest, text),
        _ => {}
    }
}

struct Misshapen(&'static str);

impl Run for Misshapen {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(self.refused(t))
    }
}

impl Misshapen {
    async fn refused(&self, t: &Trial) -> Outcome {
        let unknown = || Stop::NotRun(format!("the contract of this suite has no RPC {}", self.0));
        let method = method(self.0).ok_or_else(unknown)?;
        let rpc = rpcs::ALL.iter().find(|rpc| rpc.name == self.0).ok_or_else(unknown)?;
        let deadline = t.deadline(rpc);
        // If one is not refused, what it makes belongs to this run; but nobody else may lead its cluster.
        let service = t.unmade().await?.uid();
        let cluster = if self.0 == "Lead" { t.uid() } else { t.cluster().unwrap_or_default().uid };
        let ours =
            |row: &&Row| row.message == method.input().name() && row.reason == "INVALID_ARGUMENT_SHAPE";
        for row in ROWS.iter().filter(ours) {
            let mut request = read(&method, row).ok_or_else(unknown)?;
            replace(&mut request, &["cluster", "uid"], &cluster);
            replace(&mut request, &["service", "ref", "uid"], &service);
            replace(&mut request, &["service", "uid"], &service);
            let ask = within(request.encode_to_vec().into(), deadline);
            let answer = raw_call(&t.patient(), rpc.path, ask).await;
            let (expected, shown) = (
                format!("INVALID_ARGUMENT_SHAPE for field {}", row.field),
                row.request.chars().take(300).collect::<String>(),
            );
            let Err(status) = answer else {
                return Err(failed(expected, format!("OK for the {} {shown}", row.message)));
            };
            // The rows are for batches of three.
            let fits = [ErrorReason::InvalidArgumentShape, ErrorReason::BatchTooLarge];
            if !reason_of(&status).is_some_and(|reason| fits.contains(&reason)) {
                return Err(failed(
                    expected,
                    format!("{} for the {} {shown}", in_words(&status), row.message),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read_and_every_request_has_some() {
        for case in CASES {
            let rpc = case.title.split(':').next().unwrap_or_default();
            let method = method(rpc).unwrap_or_else(|| panic!("{rpc}"));
            let rows: Vec<_> = ROWS.iter().filter(|row| row.message == method.input().name()).collect();
            assert!(rows.len() > 1, "{rpc}");
            assert!(rows.iter().all(|row| read(&method, row).is_some()), "{rpc}");
        }
    }
}
