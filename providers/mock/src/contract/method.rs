//! The RPCs of the contract by name and path, the sets of them that effects are about, and the types of their messages.

use std::{iter, sync::LazyLock};

use cloudprovider_sdk::contract::FILE_DESCRIPTOR_SET;
pub(crate) use cloudprovider_sdk::contract::method::*;
use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

/// The contract's descriptors. If they were unreadable, faults would have no effect.
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default());

/// RPCs that ask the cloud: those after `Lead`, which is the last that answers from memory.
pub(crate) const CLOUD_FACING: &[&Method] = ALL.split_at(3).1;
/// RPCs that only a leader may call.
pub(crate) const LED: &[&Method] = &[
    &LEAD,
    &ADD_SSH_KEY_TO_ALL_INSTANCES,
    &ENSURE_LOAD_BALANCER,
    &BATCH_UPDATE_LOAD_BALANCERS,
    &DELETE_LOAD_BALANCER,
    &BATCH_ENSURE_ROUTES,
    &BATCH_DELETE_ROUTES,
];
/// RPCs that change the cloud.
pub(crate) const CHANGES: &[&Method] = LED.split_at(1).1;
/// RPCs that answer item by item.
pub(crate) const BATCHES: &[&Method] = &[
    &BATCH_GET_INSTANCES,
    &BATCH_UPDATE_LOAD_BALANCERS,
    &BATCH_ENSURE_ROUTES,
    &BATCH_DELETE_ROUTES,
    &BATCH_GET_VOLUME_LABELS,
];

fn every() -> impl Iterator<Item = &'static Method> {
    iter::once(&GET_INFO).chain(ALL.iter().copied())
}

/// The RPC of this name, with or without its service.
pub(crate) fn named(text: &str) -> Option<&'static Method> {
    let name = text.rsplit('/').next().unwrap_or(text);
    every().find(|method| method.name.eq_ignore_ascii_case(name))
}

/// The RPC at this path of an HTTP request.
pub(crate) fn of_path(path: &str) -> Option<&'static Method> {
    every().find(|method| method.path == path)
}

fn descriptor(method: &Method) -> Option<MethodDescriptor> {
    let (service, name) = method.path.strip_prefix('/')?.split_once('/')?;
    POOL.get_service_by_name(service)?.methods().find(|method| method.name() == name)
}

/// The type of its request.
pub(super) fn request(method: &Method) -> Option<MessageDescriptor> {
    descriptor(method).map(|method| method.input())
}

/// The type of its answer; of a stream, of one frame.
pub(super) fn answer(method: &Method) -> Option<MessageDescriptor> {
    descriptor(method).map(|method| method.output())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_every_rpc_are_known() {
        for method in every() {
            assert!(request(method).is_some() && answer(method).is_some(), "{method:?}");
        }
    }

    #[test]
    fn the_sets_are_those_of_the_contract() {
        let those = |is: fn(&&Method) -> bool| every().filter(is).collect::<Vec<_>>();
        assert_eq!(CHANGES, those(|method| method.class == Class::Mutation));
        assert_eq!(CLOUD_FACING, those(|method| !["Discovery", "CloudProvider"].contains(&method.service)));
        assert_eq!(BATCHES, those(|method| method.name.starts_with("Batch")));
    }

    #[test]
    fn names_and_paths_lead_to_the_method() {
        let path = "/ccm.cloudprovider.v1alpha1.Routes/ListRoutes";
        assert_eq!(of_path(path), Some(&LIST_ROUTES));
        assert_eq!(of_path("/ccm.cloudprovider.v2.Routes/ListRoutes"), None);
        assert_eq!(named("listroutes"), Some(&LIST_ROUTES));
        assert_eq!(named("Routes/ListRoutes"), Some(&LIST_ROUTES));
        assert_eq!(named("ListRoads"), None);
    }
}
