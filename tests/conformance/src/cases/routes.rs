//! Routes of one cluster.

use cloudprovider_proto::{
    defaults,
    v1alpha1::{Capability, ErrorReason, Ownership, Route, RouteState},
};
use futures::future::join_all;

use crate::{
    case::{Case, Outcome, Profile::Routes, Stop},
    provider::count as limit,
    scenario::Variables,
    trial::{Machine, Trial, expect, good, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];
const CANONICAL: &[&str] = &["route-canonical"];
const OWNERSHIP: &[&str] = &["route-ownership"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "ROUTE-01",
        Routes,
        "a route is made, and its answer names the target asked for",
        &["route-echo-target"],
        &made,
    )
    .hooks(MACHINE),
    Case::new("ROUTE-02", Routes, "a route that was made is listed, and leads to its target", &[], &listed)
        .words(&["ListRoutes lists the routes of this cluster page by page"])
        .hooks(MACHINE),
    Case::new("ROUTE-03", Routes, "destinations are answered in canonical form", CANONICAL, &canonical)
        .hooks(MACHINE),
    Case::new(
        "ROUTE-04",
        Routes,
        "the same route again and again is one route",
        &["route-echo-target"],
        &again,
    )
    .hooks(MACHINE),
    Case::new(
        "ROUTE-05",
        Routes,
        "a route with a wrong target is replaced",
        &["route-echo-target"],
        &replaced,
    )
    .hooks(MACHINE),
    Case::new("ROUTE-06", Routes, "a route is removed, and removing it again is OK", &[], &removed)
        .words(&["Idempotent: deleting an absent route is OK."])
        .hooks(MACHINE),
    Case::new(
        "ROUTE-07",
        Routes,
        "a route that was re-pointed is not removed by its former listing",
        &["route-changed"],
        &repointed,
    )
    .hooks(MACHINE),
    Case::new("ROUTE-08", Routes, "a target that does not exist is INSTANCE_NOT_FOUND", &[], &no_target)
        .words(&["| the target does not exist | OK, item error | INSTANCE_NOT_FOUND"]),
    Case::new("ROUTE-09", Routes, "the list can be bounded by cluster CIDRs", &[], &within)
        .words(&["The cluster CIDRs: routes outside all of them need not be listed."])
        .hooks(MACHINE),
    Case::new("ROUTE-10", Routes, "a route whose target is gone does not count as standing", &[], &blackhole)
        .words(&["The target no longer exists: packets are dropped."])
        .hooks(MACHINE)
        .extended(),
    Case::new("ROUTE-11", Routes, "equal calls at once make one route", &[], &at_once)
        .words(&["The natural key of a route is (cluster uid, destination CIDR)."])
        .hooks(MACHINE),
    Case::new(
        "ROUTE-12",
        Routes,
        "of a batch each route is made and removed, and one bad item costs the others nothing",
        &["batch-keys", "route-echo-target"],
        &mixed,
    )
    .words(&["one bad item never fails the others."])
    .hooks(MACHINE),
    Case::new(
        "ROUTE-13",
        Routes,
        "a node without its provider ID is a target, too",
        &["route-echo-target"],
        &new_node,
    )
    .hooks(MACHINE),
    Case::new("ROUTE-14", Routes, "a route that we made says so", OWNERSHIP, &says_so)
        .capability(Capability::RouteOwnership)
        .hooks(MACHINE),
    Case::new(
        "ROUTE-15",
        Routes,
        "a former controller's route is not said to be ours before Ensure has taken it over",
        OWNERSHIP,
        &taken_over,
    )
    .capability(Capability::RouteOwnership)
    .hooks(&["create-instance", "terminate-instance", "make-legacy-route", "delete-legacy-route"])
    .extended(),
    Case::new("ROUTE-16", Routes, "a former controller's route is not removed", OWNERSHIP, &not_removed)
        .words(&["| another cluster owns it, or it is not BY_UID | OK, item error | OWNED_BY_OTHER_CLUSTER"])
        .capability(Capability::RouteOwnership)
        .hooks(&["make-legacy-route", "delete-legacy-route"])
        .extended(),
];

fn leads_to(route: &Route, machine: &Machine) -> Outcome {
    let target = route.target.as_ref();
    let named = target.is_some_and(|target| {
        target.name == machine.name
            && (target.provider_id.is_empty() || target.provider_id == machine.provider_id)
    });
    expect(named, format!("target {} ({})", machine.name, machine.provider_id), route)
}

/// Whether it leads to this instance, as a list tells, which may not know its node.
fn is_at(route: &Route, machine: &Machine) -> bool {
    route.target.as_ref().is_some_and(|target| target.provider_id == machine.provider_id)
}

async fn ours(t: &Trial, destination: &str) -> Result<Route, Stop> {
    ours_where(t, destination, |_| true).await
}

/// The route to this destination, once the list has it like this.
async fn ours_where(t: &Trial, destination: &str, is_it: impl Fn(&Route) -> bool) -> Result<Route, Stop> {
    let cluster = t.cluster().unwrap_or_default();
    t.eventually(&format!("the route to {destination} in the list, as it is now"), async || {
        let found = t.listed_route(&cluster, destination).await?;
        let seen = format!("{found:?}");
        Ok(found.filter(&is_it).ok_or(seen))
    })
    .await
}

async fn is_gone(t: &Trial, destination: &str) -> Outcome {
    t.eventually(&format!("no route to {destination} in the list"), async || {
        let left = t.listed_route(&t.cluster().unwrap_or_default(), destination).await?;
        Ok(left.map_or(Ok(()), |left| Err(format!("{left:?}"))))
    })
    .await
}

async fn made(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let route = t.ensure_route(&destination, &machine.node()).await?;
    leads_to(&route, &machine)?;
    expect(!route.id.is_empty() && route.state() == RouteState::Active, "an id, and state ACTIVE", &route)
}

async fn listed(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let route = t.ensure_route(&destination, &machine.node()).await?;
    let listed = ours(t, &destination).await?;
    same("the id", &listed.id, &route.id)?;
    let target = listed.target.unwrap_or_default();
    same("the target's provider ID", &target.provider_id, &machine.provider_id)
}

fn is_canonical(text: &str) -> bool {
    text.parse::<ipnet::IpNet>().is_ok_and(|net| net.trunc().to_string() == text)
}

async fn canonical(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let route = t.ensure_route(&destination, &machine.node()).await?;
    same("destination_cidr", &route.destination_cidr, &destination)?;
    for listed in t.listed_routes(&t.cluster().unwrap_or_default(), &[]).await? {
        expect(is_canonical(&listed.destination_cidr), "a canonical CIDR", listed.destination_cidr)?;
    }
    Ok(())
}

async fn again(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let first = t.ensure_route(&destination, &machine.node()).await?;
    for _time in 1..t.scenario().repeats.max(2) {
        let route = t.ensure_route(&destination, &machine.node()).await?;
        leads_to(&route, &machine)?;
        same("the id", &route.id, &first.id)?;
    }
    count(t, &destination).await
}

/// Exactly one route to this destination.
async fn count(t: &Trial, destination: &str) -> Outcome {
    t.eventually(&format!("one route to {destination}"), async || {
        let mut all = t.listed_routes(&t.cluster().unwrap_or_default(), &[]).await?;
        all.retain(|route| route.destination_cidr == destination);
        Ok(if all.len() == 1 { Ok(()) } else { Err(format!("{all:?}")) })
    })
    .await
}

async fn replaced(t: &Trial) -> Outcome {
    let (machines, destination) = (t.machines(2).await?, t.destination()?);
    t.ensure_route(&destination, &machines[0].node()).await?;
    let route = t.ensure_route(&destination, &machines[1].node()).await?;
    leads_to(&route, &machines[1])?;
    ours_where(t, &destination, |route| is_at(route, &machines[1])).await?;
    count(t, &destination).await
}

async fn removed(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    t.ensure_route(&destination, &machine.node()).await?;
    let listed = ours(t, &destination).await?;
    let cluster = t.cluster().unwrap_or_default();
    for _time in 0..3 {
        let deleted = t.delete_route(&cluster, &listed).await?;
        expect(deleted.error.is_none(), "a route that is gone, without an error", deleted)?;
    }
    is_gone(t, &destination).await
}

async fn repointed(t: &Trial) -> Outcome {
    let (machines, destination) = (t.machines(2).await?, t.destination()?);
    t.ensure_route(&destination, &machines[0].node()).await?;
    let former = ours(t, &destination).await?;
    t.ensure_route(&destination, &machines[1].node()).await?;
    let cluster = t.cluster().unwrap_or_default();
    let deleted = t.delete_route(&cluster, &former).await?;
    let told = deleted.error.as_ref().is_some_and(|error| error.reason() == ErrorReason::RouteChanged);
    let left = t.listed_route(&cluster, &destination).await?;
    expect(left.is_some(), "the route still there", &deleted)?;
    expect(told, "item error ROUTE_CHANGED", deleted)
}

async fn no_target(t: &Trial) -> Outcome {
    let destination = t.destination()?;
    let request = t.routes_to_ensure(vec![(destination.clone(), t.stranger())]);
    let result = t.ensure_route_or_refused(request).await?;
    let told = result.error.as_ref().is_some_and(|error| error.reason() == ErrorReason::InstanceNotFound);
    expect(told && result.route.is_none(), "item error INSTANCE_NOT_FOUND, and no route", &result)?;
    let left = t.listed_route(&t.cluster().unwrap_or_default(), &destination).await?;
    expect(left.is_none(), "no route", left)
}

async fn within(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    t.ensure_route(&destination, &machine.node()).await?;
    let cluster = t.cluster().unwrap_or_default();
    t.eventually(&format!("{destination} within 198.18.0.0/15"), async || {
        let inside = t.listed_routes(&cluster, &["198.18.0.0/15".to_owned()]).await?;
        let there = inside.iter().any(|route| route.destination_cidr == destination);
        Ok(if there { Ok(()) } else { Err(format!("{inside:?}")) })
    })
    .await
}

async fn blackhole(t: &Trial) -> Outcome {
    let (machine, destination) = (t.own_machine().await?, t.destination()?);
    t.ensure_route(&destination, &machine.node()).await?;
    t.steer_machine("terminate-instance", &machine).await?;
    t.eventually("no route any more, or one that is not ACTIVE", async || {
        let route = t.listed_route(&t.cluster().unwrap_or_default(), &destination).await?;
        let stands = route.as_ref().is_some_and(|route| route.state() == RouteState::Active);
        Ok(if stands { Err(format!("{route:?}")) } else { Ok(()) })
    })
    .await
}

async fn at_once(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let node = machine.node();
    let request = t.routes_to_ensure(vec![(destination.clone(), node.clone())]);
    let call = async || t.routes().batch_ensure_routes(t.ask(request.clone())).await;
    for answer in join_all((0..8).map(|_| call())).await {
        good("BatchEnsureRoutes", answer)?;
    }
    t.ensure_route(&destination, &node).await?;
    count(t, &destination).await
}

async fn mixed(t: &Trial) -> Outcome {
    let (machines, cluster) = (t.machines(2).await?, t.cluster().unwrap_or_default());
    // Two of them lead to one target.
    let mut leading = Vec::new();
    for machine in [&machines[0], &machines[1], &machines[1]] {
        leading.push((t.destination()?, machine));
    }
    leading.truncate(limit(t.provider().limits().max_batch_routes, defaults::MAX_BATCH) - 1);
    let mut items = vec![(t.destination()?, t.stranger())];
    items.extend(leading.iter().map(|(destination, machine)| (destination.clone(), machine.node())));
    let results = t.ensure_routes(t.routes_to_ensure(items)).await?;
    let of = |at: usize| results.iter().find(|result| result.key == format!("k{at}"));
    let is_refused = of(0).is_some_and(|result| result.error.is_some());
    let fits = is_refused && results.len() == leading.len() + 1;
    expect(fits, format!("{} routes and one error", leading.len()), &results)?;
    if leading.is_empty() {
        return Ok(());
    }
    let mut listed = Vec::new();
    for (at, (destination, machine)) in leading.iter().enumerate() {
        let made =
            of(at + 1).filter(|result| result.error.is_none()).and_then(|result| result.route.as_ref());
        expect(made.is_some(), format!("a route for k{}", at + 1), &results)?;
        leads_to(made.unwrap_or(&Route::default()), machine)?;
        listed.push(ours_where(t, destination, |route| is_at(route, machine)).await?);
    }
    for deleted in t.delete_routes(&cluster, &listed).await? {
        expect(deleted.error.is_none(), "routes that are gone, without an error", deleted)?;
    }
    for (destination, _) in &leading {
        is_gone(t, destination).await?;
    }
    Ok(())
}

async fn new_node(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let route = t.ensure_route(&destination, &machine.new_node()).await?;
    leads_to(&route, &machine)
}

fn is(route: &Route, ownership: Ownership) -> Outcome {
    expect(route.ownership() == ownership, format!("ownership {}", ownership.as_str_name()), route)
}

async fn says_so(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    is(&t.ensure_route(&destination, &machine.node()).await?, Ownership::ByUid)?;
    is(&ours(t, &destination).await?, Ownership::ByUid)
}

/// The former controller's route to this destination, if it is listed.
async fn former(t: &Trial, destination: &str) -> Result<Option<Route>, Stop> {
    let cluster = t.cluster().unwrap_or_default();
    let told = Variables::new().with("DESTINATION", destination).with("CLUSTER_NAME", &cluster.name);
    t.register_hook("delete-legacy-route", told.clone())?;
    t.hook("make-legacy-route", &told).await?;
    t.listed_route(&cluster, destination).await
}

async fn not_removed(t: &Trial) -> Outcome {
    let destination = t.destination()?;
    let Some(listed) = former(t, &destination).await? else { return Ok(()) };
    let cluster = t.cluster().unwrap_or_default();
    let deleted = t.delete_route(&cluster, &listed).await?;
    let reason = deleted.error.as_ref().map(|error| error.reason());
    same("the item's reason", &reason, &Some(ErrorReason::OwnedByOtherCluster))?;
    let still = t.listed_route(&cluster, &destination).await?;
    expect(still.is_some(), "the route, still listed", still)
}

async fn taken_over(t: &Trial) -> Outcome {
    let (machine, destination) = (t.machine().await?, t.destination()?);
    let found = former(t, &destination).await?;
    // It may be listed or not; a listed one that is ours is deleted.
    expect(
        found.as_ref().is_none_or(|route| route.ownership() != Ownership::ByUid),
        "no route that is BY_UID",
        &found,
    )?;
    is(&t.ensure_route(&destination, &machine.node()).await?, Ownership::ByUid)?;
    ours_where(t, &destination, |route| route.ownership() == Ownership::ByUid).await?;
    count(t, &destination).await
}
