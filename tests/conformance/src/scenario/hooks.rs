//! All hooks: what each receives, what it does, and what it must print.

/// A hook as the documentation and the checks know it.
#[derive(Debug, Clone, Copy)]
pub struct HookInfo {
    /// Its name in the scenario.
    pub name: &'static str,
    /// Its variables, without `CONFORMANCE_`.
    pub variables: &'static [&'static str],
    /// What it does.
    pub what: &'static str,
    /// What it prints; empty if nothing.
    pub prints: &'static str,
}

const fn hook(
    name: &'static str,
    variables: &'static [&'static str],
    what: &'static str,
    prints: &'static str,
) -> HookInfo {
    HookInfo { name, variables, what, prints }
}

const MACHINE: &[&str] = &["NAME", "PROVIDER_ID"];
const LEGACY: &[&str] = &["SERVICE_UID", "SERVICE_NAME", "SERVICE_NAMESPACE", "CLUSTER_NAME"];
const LEGACY_ROUTE: &[&str] = &["DESTINATION", "CLUSTER_NAME"];

/// All hooks.
pub const HOOKS: &[HookInfo] = &[
    hook(
        "create-instance",
        &["NAME", "CLUSTER_UID", "CLUSTER_NAME"],
        "creates a running instance for a node of this name; returns when the cloud knows it",
        "an object, or a list of one, with `provider_id`; optional: `name` (of the node), `system_uuid`, `addresses`",
    ),
    hook(
        "create-instances",
        &["NAME", "COUNT", "CLUSTER_UID", "CLUSTER_NAME"],
        "creates COUNT running instances for nodes NAME-0, NAME-1, …; only where thousands cost nothing",
        "a list of objects as of `create-instance`",
    ),
    hook("terminate-instances", &["NAME", "COUNT"], "terminates these instances", ""),
    hook("stop-instance", MACHINE, "stops an instance", ""),
    hook("start-instance", MACHINE, "starts a stopped instance", ""),
    hook("terminate-instance", MACHINE, "terminates an instance; it is no error if it is gone", ""),
    hook("cut-cloud", &[], "the cloud's API stops answering", ""),
    hook("restore-cloud", &[], "the cloud's API answers again", ""),
    hook("cut-location", MACHINE, "the zone or region of this instance stops answering", ""),
    hook("restore-location", &[], "all locations answer again", ""),
    hook("break-credentials", &[], "the cloud rejects the provider's credentials", ""),
    hook("restore-credentials", &[], "the cloud accepts the provider's credentials again", ""),
    hook(
        "deny-rights",
        &[],
        "the provider's credentials are good but have no rights to read or change anything",
        "",
    ),
    hook("restore-rights", &[], "the provider has all its rights again", ""),
    hook(
        "provoke-error",
        &["REASON", "METHOD"],
        "from now on the cloud ends with REASON what METHOD asks of it: a real quota ends only what makes something, and reads go on; exit 3 when this cloud has no such error",
        "",
    ),
    hook("stop-errors", &[], "ends all provoked errors", ""),
    hook("slow-load-balancers", &[], "a new load balancer takes some seconds from now on", ""),
    hook("restore-load-balancers", &[], "new load balancers are quick again", ""),
    hook(
        "inspect-load-balancer",
        &["SERVICE_UID", "SERVICE_NAMESPACE", "SERVICE_NAME", "CLUSTER_UID", "CLUSTER_NAME"],
        "asks the cloud, never the provider, what exists for this Service",
        "a list with an object for each balancer, see [what was built](#what-was-built); empty when there is none",
    ),
    hook(
        "make-drift",
        &["SERVICE_UID", "LOAD_BALANCER_ID", "LOAD_BALANCER_NAME"],
        "changes a load balancer behind the provider's back",
        "",
    ),
    hook(
        "make-legacy-load-balancer",
        LEGACY,
        "creates a load balancer, named and tagged as this cloud's former controller would have done",
        "",
    ),
    hook("delete-legacy-load-balancer", LEGACY, "deletes it; it is no error if it is gone", ""),
    hook(
        "make-legacy-route",
        LEGACY_ROUTE,
        "creates a route to this destination without a target, named as this cloud's former controller would have done",
        "",
    ),
    hook("delete-legacy-route", LEGACY_ROUTE, "deletes it; it is no error if it is gone", ""),
    hook(
        "count-cloud-calls",
        &[],
        "counts all calls of the cloud's API that the provider ever began; leave out a probe of its own that no RPC waits for, such as the one behind GetStatus",
        "an object with `calls` and `changes` (the calls that change something); `batches`: false if no call of the API covers many instances",
    ),
    hook(
        "list-cloud-objects",
        &["CLUSTER_UID", "CLUSTER_NAME"],
        "lists everything that the cloud has for the cluster, except instances: balancers, rules, groups, checks, addresses, routes",
        "a list of objects with `kind` and `id`",
    ),
    hook("slow-cloud", &[], "each call of the cloud's API takes about a second from now on", ""),
    hook("restore-cloud-speed", &[], "the cloud's API is quick again", ""),
    hook("create-volume", &["NAME"], "creates a volume", "an object with `plugin` and `volume_id`"),
    hook("delete-volume", &["NAME", "VOLUME_ID"], "deletes a volume; it is no error if it is gone", ""),
    hook(
        "delete-ssh-key",
        &["USER", "PUBLIC_KEY"],
        "removes this user's key from the cloud and all instances; it is no error if it is gone",
        "",
    ),
    hook("create-cluster", &["NAME"], "creates a hosted cluster of this name", "an object with `host`"),
    hook("delete-cluster", &["NAME"], "deletes a hosted cluster; it is no error if it is gone", ""),
    hook(
        "renew-certificates",
        &[],
        "gives the provider a new certificate from the same authority, as a renewal does",
        "",
    ),
    hook(
        "find-logs",
        &[],
        "prints where the provider's logs of this run are",
        "an object with `files`, a list of paths",
    ),
    hook("measure-provider", &[], "measures the provider's process", "an object with `threads`"),
    hook(
        "restart-provider",
        &[],
        "stops the provider as Kubernetes does (SIGTERM) and starts it again at the same endpoint",
        "",
    ),
    hook("kill-provider", &[], "kills the provider (SIGKILL) and starts it again at the same endpoint", ""),
];

/// The hook with this name.
pub(super) fn named(name: &str) -> Option<&'static HookInfo> {
    HOOKS.iter().find(|hook| hook.name == name)
}

/// The hook that undoes this one, if any.
pub(crate) fn undoing(name: &str) -> Option<&'static str> {
    Some(match name {
        "cut-cloud" => "restore-cloud",
        "cut-location" => "restore-location",
        "break-credentials" => "restore-credentials",
        "deny-rights" => "restore-rights",
        "provoke-error" => "stop-errors",
        "slow-cloud" => "restore-cloud-speed",
        "slow-load-balancers" => "restore-load-balancers",
        _ => return None,
    })
}
