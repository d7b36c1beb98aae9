//! The subjects of a request, and of the entries of a list: for the call log, and for faults that target one node or
//! Service.

use prost_reflect::{DynamicMessage, Value};

use super::message::{Message, part, text};

/// The lists of a batch.
const ITEMS: [&str; 2] = ["queries", "items"];
/// The parts that say what a request, an item or an entry of a list is about.
const PARTS: [&str; 6] = ["node", "service", "ref", "route", "target", "instance"];
/// The fields that name it; the first is shown.
const NAMES: [&str; 8] =
    ["destination_cidr", "volume_id", "name", "provider_id", "uid", "id", "cluster_name", "user"];

/// One subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its key in the results of a batch.
    pub(crate) key: String,
    /// The names that people may use for it; the first is shown.
    pub(crate) names: Vec<String>,
}

impl Subject {
    /// One for each item of a batch; else what the request itself is about, if anything.
    pub(crate) fn all(request: &Message) -> Vec<Self> {
        let request = request.fields();
        match ITEMS.iter().find_map(|list| request.get_field_by_name(list)) {
            Some(items) => {
                let items = items.as_list().into_iter().flatten();
                items.filter_map(Value::as_message).map(Self::of).collect()
            }
            None => Vec::from_iter(Some(Self::of(request)).filter(|subject| !subject.names.is_empty())),
        }
    }

    /// What an item of a batch, or an entry of a list, is about.
    pub(crate) fn of(item: &DynamicMessage) -> Self {
        let uid = || {
            let service = part(item, "service")?;
            text(part(service, "ref").unwrap_or(service), "uid")
        };
        Self { key: text(item, "key").or_else(uid).unwrap_or_default(), names: names(item) }
    }

    /// Whether one of the given names matches; no names match everything, and a trailing `*` makes a prefix.
    pub(crate) fn is_among(&self, on: &[String]) -> bool {
        let means = |wanted: &String, name: &String| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == wanted,
        };
        on.is_empty() || on.iter().any(|wanted| self.names.iter().any(|name| means(wanted, name)))
    }
}

fn names(of: &DynamicMessage) -> Vec<String> {
    let path =
        text(of, "namespace").zip(text(of, "name")).map(|(namespace, name)| format!("{namespace}/{name}"));
    let own = NAMES.iter().filter_map(|field| text(of, field));
    let inner = PARTS.iter().filter_map(|field| part(of, field)).flat_map(names);
    path.into_iter().chain(own).chain(inner).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::*;

    use super::*;
    use crate::contract::{Method, method};

    fn subjects(method: &Method, request: &impl prost::Message) -> Vec<(String, String)> {
        let request = Message::request(method, request.encode_to_vec().into()).unwrap();
        let subjects = Subject::all(&request).into_iter();
        subjects.map(|subject| (subject.key, subject.names.join(" "))).collect()
    }

    fn pair(key: &str, names: &str) -> (String, String) {
        (key.to_owned(), names.to_owned())
    }

    #[test]
    fn requests_are_about_services_nodes_routes_and_volumes() {
        let named = ServiceRef { namespace: "ns".into(), name: "web".into(), uid: "u1".into() };
        let service = Some(Service { r#ref: Some(named.clone()), ..Service::default() });
        let last_known = service.clone();
        let node = NodeRef { name: "n".into(), provider_id: "mock://z/i".into(), ..NodeRef::default() };
        let backends = Some(BackendSet { nodes: vec![node.clone()], ..BackendSet::default() });
        let web = [pair("u1", "ns/web web u1")];
        let ensure = EnsureLoadBalancerRequest { service: service.clone(), backends, ..Default::default() };
        assert_eq!(subjects(&method::ENSURE_LOAD_BALANCER, &ensure), web, "backends are none");
        let delete = DeleteLoadBalancerRequest { service: Some(named), last_known, ..Default::default() };
        assert_eq!(subjects(&method::DELETE_LOAD_BALANCER, &delete), web);
        let items = vec![LoadBalancerUpdate { service, ..Default::default() }];
        let update = BatchUpdateLoadBalancersRequest { items, ..Default::default() };
        assert_eq!(subjects(&method::BATCH_UPDATE_LOAD_BALANCERS, &update), web);
        let queries = vec![InstanceQuery { key: "k".into(), node: Some(node.clone()) }];
        let get = BatchGetInstancesRequest { queries, ..Default::default() };
        assert_eq!(subjects(&method::BATCH_GET_INSTANCES, &get), [pair("k", "n mock://z/i")]);
        let (id, destination_cidr) = ("rt-1".into(), "10.1.0.0/24".into());
        let route = Some(Route { id, destination_cidr, target: Some(node), ..Default::default() });
        let items = vec![RouteToDelete { key: "r".into(), route }];
        let delete = BatchDeleteRoutesRequest { items, ..Default::default() };
        let wanted = [pair("r", "10.1.0.0/24 rt-1 n mock://z/i")];
        assert_eq!(subjects(&method::BATCH_DELETE_ROUTES, &delete), wanted);
        let (volume_id, name) = ("disk".into(), "pv".into());
        let queries = vec![VolumeQuery { key: "v".into(), volume_id, name, ..Default::default() }];
        let labels = BatchGetVolumeLabelsRequest { queries, ..Default::default() };
        assert_eq!(subjects(&method::BATCH_GET_VOLUME_LABELS, &labels), [pair("v", "disk pv")]);
        let cluster = Some(ClusterRef { uid: "c".into(), name: "one".into() });
        let list = ListRoutesRequest { cluster, ..Default::default() };
        assert_eq!(subjects(&method::LIST_ROUTES, &list), []);
    }
}
