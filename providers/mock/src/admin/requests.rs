//! Every request to the admin door: each reads or changes the cloud.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    Client, Termination,
    door::{Answer, Asked, Door, all, counted, inspected, nothing_there, shown},
};
use crate::{
    calls::{Call, CallSummary},
    cloud::{
        Balancer, Conditions, HostedCluster, Instance, ListedRoute, NewInstances, NewLegacyBalancer,
        NewRoute, Quota, Route, SshKey, Volume, existing,
    },
    fault::{Fault, FaultStatus},
};

/// One row per request: the client's method with its arguments and result, the request's method and path, and the door's answer.
macro_rules! requests {
    ($door:ident, $asked:ident; $($(#[$doc:meta])* $name:ident($($taken:ident: $type:ty),*) -> $given:ty:
        $method:ident $path:tt $(, $body:ident)? => $answer:expr;)*) => {
        impl Client {$(
            $(#[$doc])*
            pub async fn $name(&self $(, $taken: &$type)*) -> anyhow::Result<$given> {
                let body = ($($body)?);
                self.call(Method::$method, &$path, None, &body).await
            }
        )*}

        impl Door {
            pub(super) async fn answer(&self, $asked: Asked<'_>) -> Answer {
                let $door = self;
                match (&$asked.method, $asked.path) {
                    $((&Method::$method, $path) => {
                        $(let $body = $asked.body()?;)?
                        $answer
                    })*
                    (method, path) => nothing_there(method, path),
                }
            }
        }
    };
}

requests! {
    door, asked;

    /// Describes the mock.
    info() -> Value: GET ["info"] => shown(&door.info);

    /// All instances.
    instances() -> Vec<Instance>: GET ["instances"] => door.mock.look(|state| all(state.instances()));
    /// One instance.
    instance(reference: str) -> Instance: GET ["instances", reference]
        => door.mock.look(|state| shown(existing("instance", reference, state.instance(reference))?));
    /// Creates instances.
    create_instances(wish: NewInstances) -> Vec<Instance>: POST ["instances"], wish
        => door.change(|state, now| state.create_instances(&wish, now)).await;
    /// Changes an instance by a JSON merge patch.
    patch_instance(reference: str, patch: Value) -> Instance: PATCH ["instances", reference], patch
        => door.change(|state, _| state.patch_instance(reference, &patch)).await;
    /// Stops an instance.
    stop_instance(reference: str) -> Instance: POST ["instances", reference, "stop"]
        => door.change(|state, _| state.set_running(reference, false)).await;
    /// Starts a stopped instance.
    start_instance(reference: str) -> Instance: POST ["instances", reference, "start"]
        => door.change(|state, _| state.set_running(reference, true)).await;
    /// Terminates an instance.
    terminate_instance(reference: str, wish: Termination) -> Instance:
        POST ["instances", reference, "terminate"], wish
        => door.change(|state, now| {
            let Termination { linger_ms } = wish;
            state.terminate_instance(reference, linger_ms.map(Duration::from_millis), now)
        }).await;
    /// Deletes an instance at once.
    delete_instance(reference: str) -> Instance: DELETE ["instances", reference]
        => door.change(|state, _| state.delete_instance(reference)).await;
    /// Deletes at once all instances whose name has this prefix.
    delete_instances(prefix: str) -> Vec<Instance>: DELETE ["instances-named", prefix]
        => door.change(|state, _| Ok(state.delete_instances(prefix))).await;

    /// All balancers.
    balancers() -> Vec<Balancer>: GET ["balancers"] => door.mock.look(|state| all(state.balancers()));
    /// Ids of the balancers that have this node's instance as a backend: a much smaller answer than all balancers with all backends.
    balancers_with(node: str) -> Vec<String>: GET ["balancers", "behind", node]
        => door.mock.look(|state| all(state.balancers().filter(|one| one.has_behind(node)).map(|one| &one.id)));
    /// What exists for one Service, in the form that the conformance suite reads.
    inspect_balancers(service_uid: str) -> Vec<Value>: GET ["balancers", "inspect", service_uid]
        => door.mock.look(|state| {
            all(state.balancers().filter(|one| one.service_uid == *service_uid).map(inspected))
        });
    /// Creates a balancer of a former controller, or of another cluster.
    create_legacy_balancer(wish: NewLegacyBalancer) -> Balancer: POST ["balancers", "legacy"], wish
        => door.change(|state, now| state.create_legacy_balancer(wish, now)).await;
    /// One balancer.
    balancer(reference: str) -> Balancer: GET ["balancers", reference]
        => door.mock.look(|state| shown(existing("load balancer", reference, state.balancer(reference))?));
    /// Changes a balancer behind the provider's back by a JSON merge patch, so that it drifts.
    patch_balancer(reference: str, patch: Value) -> Balancer: PATCH ["balancers", reference], patch
        => door.change(|state, _| state.patch_balancer(reference, &patch)).await;
    /// Deletes a balancer behind the provider's back.
    delete_balancer(reference: str) -> Balancer: DELETE ["balancers", reference]
        => door.change(|state, _| state.remove_balancer_outside(reference)).await;

    /// All routes.
    routes() -> Vec<ListedRoute>: GET ["routes"] => door.mock.look(|state| all(state.routes()));
    /// Creates a route behind the provider's back.
    create_route(wish: NewRoute) -> ListedRoute: POST ["routes"], wish
        => door.change(|state, _| state.create_route_outside(wish)).await;
    /// Changes a route behind the provider's back by a JSON merge patch.
    patch_route(reference: str, patch: Value) -> ListedRoute: PATCH ["routes", reference], patch
        => door.change(|state, _| state.patch_route(reference, &patch)).await;
    /// Deletes a route behind the provider's back.
    delete_route(reference: str) -> Route: DELETE ["routes", reference]
        => door.change(|state, _| state.remove_route_outside(reference)).await;
    /// Kind and id of what the cloud holds for a cluster, except instances.
    held(cluster_uid: str) -> Vec<Value>: GET ["held", cluster_uid]
        => door.mock.look(|state| shown(state.held(cluster_uid)));

    /// All volumes.
    volumes() -> Vec<Volume>: GET ["volumes"] => door.mock.look(|state| all(state.volumes.values()));
    /// Creates or replaces a volume.
    put_volume(volume: Volume) -> Volume: POST ["volumes"], volume
        => door.change(|state, _| state.put_volume(volume)).await;
    /// Deletes a volume.
    delete_volume(id: str) -> Volume: DELETE ["volumes", id]
        => door.change(|state, _| state.delete_volume(id)).await;
    /// All hosted clusters.
    clusters() -> Vec<HostedCluster>: GET ["clusters"] => door.mock.look(|state| all(state.clusters.values()));
    /// Creates or replaces a hosted cluster.
    put_cluster(cluster: HostedCluster) -> HostedCluster: POST ["clusters"], cluster
        => door.change(|state, _| state.put_cluster(cluster)).await;
    /// Deletes a hosted cluster.
    delete_cluster(name: str) -> HostedCluster: DELETE ["clusters", name]
        => door.change(|state, _| state.delete_cluster(name)).await;
    /// All SSH keys.
    ssh_keys() -> Vec<SshKey>: GET ["ssh-keys"] => door.mock.look(|state| shown(&state.ssh_keys));
    /// Removes a user's SSH key, if there is one.
    delete_ssh_key(user: str, public_key: str) -> Vec<SshKey>: DELETE ["ssh-keys", user, public_key]
        => door.change(|state, _| Ok(state.delete_ssh_key(user, public_key))).await;
    /// The quota.
    quota() -> Quota: GET ["quota"] => door.mock.look(|state| shown(state.quota));
    /// Sets the quota.
    set_quota(quota: Quota) -> Quota: PUT ["quota"], quota
        => door.change(|state, _| Ok({ state.quota = quota; quota })).await;
    /// The conditions.
    conditions() -> Conditions: GET ["conditions"] => door.mock.look(|state| shown(&state.conditions));
    /// Changes the conditions by a JSON merge patch.
    patch_conditions(patch: Value) -> Conditions: PATCH ["conditions"], patch
        => door.change(|state, _| state.patch_conditions(&patch)).await;

    /// The calls, in order of arrival.
    calls() -> Vec<Call>: GET ["calls"] => shown(door.mock.calls.list(
        asked.filter.method.as_deref(), asked.filter.since.unwrap_or(0), asked.filter.limit.unwrap_or(usize::MAX),
    ));
    /// Totals of each RPC and of the cloud's own API since the last reset.
    call_summary() -> CallSummary: GET ["calls", "summary"]
        => shown(CallSummary { methods: door.mock.calls.methods(), cloud: door.cloud_calls() });
    /// How often the cloud's own API was called, and how many of these calls change something.
    count_calls() -> Value: GET ["calls", "count"] => shown(counted(&door.cloud_calls()));
    /// Forgets all calls.
    reset_calls() -> (): DELETE ["calls"] => {
        door.mock.calls.reset();
        door.mock.look(|state| state.calls.lock().clear());
        shown(())
    };

    /// All faults, including spent ones.
    faults() -> Vec<FaultStatus>: GET ["faults"] => shown(door.mock.faults.list());
    /// Adds a fault.
    add_fault(fault: Fault) -> FaultStatus: POST ["faults"], fault => door.add_fault(fault);
    /// Removes all faults, and returns how many there were.
    clear_faults() -> Value: DELETE ["faults"]
        => shown(json!({"cleared": door.mock.faults.remove(|_id, _kind| true)}));
    /// Takes the fault of this number away, or all of this kind; how many they were.
    remove_faults(reference: str) -> Value: DELETE ["faults", reference]
        => shown(json!({"cleared": door.remove_faults(reference)?}));
}
