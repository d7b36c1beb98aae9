//! The RPCs behind spans and metrics, as a bounded list: the contract's, and those that this crate adds.

use cloudprovider_proto::method::{self as contract, ALL, GET_INFO};

use crate::metrics::Method;

/// Those that are not in the contract.
const OTHERS: [&str; 3] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

/// An RPC of the contract.
pub(crate) fn of(method: &contract::Method) -> Method {
    named(method.path)
}

/// The RPC of a path such as `/package.Service/Method`; "other" for any that is not in the list.
pub(crate) fn of_path(path: &str) -> Method {
    let ours = ALL.iter().copied().chain([&GET_INFO]).map(|method| method.path);
    named(ours.chain(OTHERS).find(|known| *known == path).unwrap_or_default())
}

fn named(path: &'static str) -> Method {
    let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let (service, method) = names.unwrap_or(("other", "other"));
    Method { service, method }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_list_is_other() {
        let known = of_path("/ccm.cloudprovider.v1alpha1.Routes/ListRoutes");
        assert_eq!((known.service, known.method), ("ccm.cloudprovider.v1alpha1.Routes", "ListRoutes"));
        assert_eq!(of_path("/ccm.discovery.v1.Discovery/GetInfo").method, "GetInfo");
        for path in ["/x.Y/Z", "", "/ccm.cloudprovider.v1alpha1.Routes/ListRoads"] {
            assert_eq!(of_path(path).method, "other", "{path}");
        }
    }
}
