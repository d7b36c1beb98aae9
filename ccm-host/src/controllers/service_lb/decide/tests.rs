use std::sync::Arc;

use super::*;
use crate::{
    cloud::fake::digest_for,
    controllers::service_lb::{
        lane::{Applied, Attempt},
        services::FINALIZER,
    },
    kube::fixtures::service,
};

/// In words, so that each row of a table reads as a sentence.
#[derive(Debug, Clone)]
struct Scene {
    facts: Facts,
    lane: Option<Lane>,
}

fn given(service: Service) -> Scene {
    let facts = Facts {
        service: Some(Arc::new(service)),
        claim: Claim::Ours("cloud".to_owned()),
        maker: Standing::Ready,
        holders: Standing::Ready,
        wanted: Some(Wanted {
            digest: "d2".to_owned(),
            since_applied: Difference::Service,
            since_tried: Difference::Service,
            refusal: None,
            upkeep: None,
        }),
        published: true,
        now: Instant::now(),
    };
    Scene { facts, lane: None }
}

fn lb() -> Service {
    service("web").load_balancer().with_port("", 80)
}

fn fin(service: Service) -> Service {
    service.with_finalizer(FINALIZER)
}

fn target() -> String {
    "d1".to_owned()
}

impl Scene {
    fn vanished(mut self) -> Self {
        self.facts.service = None;
        self
    }

    fn of_others(mut self) -> Self {
        self.facts.claim = Claim::Others;
        self
    }

    fn undecided(mut self) -> Self {
        self.facts.claim = Claim::Undecided;
        self
    }

    fn known(self, presence: Presence) -> Self {
        let last = self.facts.service.as_deref().cloned().unwrap_or_else(lb);
        self.known_as(last, presence)
    }

    fn known_as(mut self, last: Service, presence: Presence) -> Self {
        let mut lane = Lane::new(Arc::new(last));
        lane.presence = presence;
        lane.holder = Some("cloud".to_owned());
        self.lane = Some(lane);
        self
    }

    fn lane(mut self, change: impl FnOnce(&mut Lane)) -> Self {
        change(self.lane.as_mut().expect("a known balancer"));
        self
    }

    fn made_here(self) -> Self {
        self.known(Presence::Present).lane(|lane| lane.made_as = Some(digest_for(None)))
    }

    fn applied(self, since: Difference) -> Self {
        let mut scene =
            self.known(Presence::Present).lane(|lane| lane.applied = Some(Applied::listed(target())));
        scene.facts.wanted.as_mut().expect("wanted").since_applied = since;
        scene
    }

    fn unpublished(mut self) -> Self {
        self.facts.published = false;
        self
    }

    fn tried(mut self, since: Difference, wait: Option<u64>) -> Self {
        let until = wait.map(|wait| self.facts.now + Duration::from_secs(wait));
        if let Some(wanted) = &mut self.facts.wanted {
            wanted.since_tried = since;
        }
        self.lane(|lane| {
            lane.attempt = Some(Attempt { intent: Intent::Apply(target()), until, in_progress: false });
        })
    }

    fn other_nodes(mut self) -> Self {
        self.facts.wanted.as_mut().expect("wanted").upkeep = Some("d3".to_owned());
        self
    }

    fn under_way(self) -> Self {
        self.lane(|lane| lane.attempt.as_mut().expect("an attempt").in_progress = true)
    }

    fn tried_to_remove(self, wait: Option<u64>) -> Self {
        let until = wait.map(|wait| self.facts.now + Duration::from_secs(wait));
        self.lane(|lane| lane.attempt = Some(Attempt { intent: Intent::Remove, until, in_progress: false }))
    }

    fn provider(mut self, standing: Standing) -> Self {
        self.facts.maker = standing.clone();
        self.facts.holders = standing;
        self
    }

    fn not_listed(mut self) -> Self {
        self.facts.wanted = None;
        self
    }

    fn refused(mut self) -> Self {
        self.facts.wanted.as_mut().expect("wanted").refusal = Some("bad".to_owned());
        self
    }

    fn decide(&self) -> Action {
        decide(&self.facts, self.lane.as_ref())
    }
}

fn check(rows: impl IntoIterator<Item = (&'static str, Scene, Action)>) {
    for (id, scene, want) in rows {
        assert_eq!(scene.decide(), want, "{id}: {scene:#?}");
    }
}

fn away() -> Standing {
    Standing::Away("away".to_owned())
}

fn frozen() -> Standing {
    Standing::Frozen("frozen".to_owned())
}

#[test]
fn what_a_service_asks_for() {
    use Difference as D;
    let udp = || {
        let mut service = lb();
        service.spec.ports[0].protocol = "UDP".to_owned();
        service
    };
    check([
        // Differs on purpose: upstream asks the cloud, which has nothing either.
        ("SVC-1", given(service("web")), Action::Forget),
        ("SVC-2", given(udp()), Action::Ensure(Wish::Wanted)),
        ("SVC-3", given(lb()), Action::Ensure(Wish::Wanted)),
        ("SVC-5", given(lb().with_class("other/lb")).of_others(), Action::Forget),
        ("SVC-6", given(fin(service("web")).with_ingress_ip("8.8.8.8")), Action::Remove(Removal::Unwanted)),
        ("SVC-7", given(fin(lb()).deleting()), Action::Remove(Removal::Unwanted)),
        ("SVC-8", given(fin(lb())), Action::Ensure(Wish::Wanted)),
        ("SVC-9", given(lb()).known(Presence::Unknown), Action::Ensure(Wish::Wanted)),
        ("SVC-10", given(fin(lb())).applied(D::Service), Action::Ensure(Wish::Wanted)),
        // SW-1: even if the balancer is reported absent, its deletion is requested.
        ("SVC-20", given(fin(lb()).deleting()).known(Presence::Absent), Action::Remove(Removal::Unwanted)),
        ("deleted before it had a balancer", given(lb().deleting()), Action::Forget),
        (
            "type changed, finalizer torn off",
            given(service("web")).made_here(),
            Action::Remove(Removal::Unwanted),
        ),
        ("SW-18", given(fin(lb())).applied(D::Nothing), Action::Rest),
        ("status lost", given(fin(lb())).applied(D::Nothing).unpublished(), Action::Publish),
        ("SW-14", given(fin(lb())).known(Presence::Present), Action::Ensure(Wish::Wanted)),
        ("bad range", given(lb()).refused(), Action::Refuse("bad".to_owned())),
        (
            "bad range, being deleted",
            given(fin(lb()).deleting()).refused(),
            Action::Remove(Removal::Unwanted),
        ),
    ]);
}

#[test]
fn what_a_change_of_nodes_asks_for() {
    use Difference as D;
    check([
        ("LBN-2", given(service("web")), Action::Forget),
        ("LBN-8", given(fin(lb())).applied(D::Nothing), Action::Rest),
        ("LBN-9", given(fin(lb())).applied(D::Backends), Action::Update(Wish::Wanted)),
        // SW-13: differs on purpose, a balancer being removed gets no new nodes.
        ("LBN-33", given(fin(lb()).deleting()).applied(D::Backends), Action::Remove(Removal::Unwanted)),
        ("both changed", given(fin(lb())).applied(D::Service), Action::Ensure(Wish::Wanted)),
    ]);
}

#[test]
fn a_former_balancer_goes_first() {
    let again = || given(lb().uid("new"));
    check([
        ("SVC-18", again().known_as(lb().uid("old"), Presence::Present), Action::Remove(Removal::Former)),
        ("SVC-18", again().known_as(lb().uid("old"), Presence::Absent), Action::Forget),
        (
            "SVC-19",
            again().known_as(lb().uid("old"), Presence::Present).tried_to_remove(Some(5)),
            Action::HoldBack(Duration::from_secs(5)),
        ),
        (
            "at a former provider",
            given(fin(lb())).made_here().lane(|lane| lane.holder = Some("other".to_owned())),
            Action::Remove(Removal::Former),
        ),
        (
            "at a former provider, being deleted",
            given(fin(lb()).deleting()).made_here().lane(|lane| lane.holder = Some("other".to_owned())),
            Action::Remove(Removal::Unwanted),
        ),
    ]);
}

#[test]
fn a_service_that_vanished_leaves_no_balancer() {
    let gone = || given(lb()).vanished();
    check([
        ("SVC-15", gone(), Action::Forget),
        ("SVC-17", gone().known(Presence::Present), Action::Remove(Removal::Vanished)),
        ("SVC-14", gone().known(Presence::Absent), Action::Forget),
        ("never made", gone().known_as(lb(), Presence::Unknown), Action::Forget),
        // Differs on purpose: upstream forgets a balancer whose cleanup had been failing.
        (
            "SVC-36",
            gone().known_as(fin(service("web")), Presence::Unknown),
            Action::Remove(Removal::Vanished),
        ),
    ]);
}

/// SW-3, SW-4.
#[test]
fn services_of_others_are_touched_only_for_a_balancer_of_ours() {
    let class = || lb().with_class("other/lb");
    check([
        // Differs on purpose: upstream deletes a balancer that another implementation may have made.
        ("SVC-31", given(class()).of_others().known(Presence::Present), Action::Forget),
        ("SVC-31", given(fin(class())).of_others(), Action::Forget),
        ("SVC-32", given(fin(class()).deleting()).of_others(), Action::AskOwner),
        ("SVC-32", given(class().deleting()).of_others(), Action::Forget),
        ("SW-3", given(fin(class())).of_others().made_here(), Action::Remove(Removal::Handover)),
        ("provider gave up the class", given(fin(lb())).of_others().made_here(), Action::Forget),
        ("SVC-32, frozen", given(fin(class()).deleting()).of_others().provider(frozen()), park("frozen")),
        ("not known whose", given(fin(class())).undecided(), park("a provider has not introduced itself")),
    ]);
}

#[test]
fn a_provider_that_cannot_be_asked_is_waited_for() {
    use Difference as D;
    check([
        ("away, to be made", given(lb()).provider(away()), park("away")),
        ("away, to be removed", given(fin(lb()).deleting()).provider(away()), park("away")),
        ("frozen, to be made", given(lb()).provider(frozen()), Action::Ensure(Wish::Wanted)),
        (
            "frozen, other nodes",
            given(fin(lb())).applied(D::Backends).provider(frozen()),
            Action::Update(Wish::Wanted),
        ),
        (
            "frozen, to be removed",
            given(fin(lb()).deleting()).provider(frozen()),
            Action::Frozen(Removal::Unwanted, "frozen".to_owned()),
        ),
        (
            "frozen, vanished",
            given(lb()).vanished().known(Presence::Present).provider(frozen()),
            Action::Frozen(Removal::Vanished, "frozen".to_owned()),
        ),
        ("SW-18", given(fin(lb())).not_listed(), park("the load balancers have not been listed yet")),
    ]);
}

fn park(why: &str) -> Action {
    Action::Park(why.to_owned())
}

/// SW-15, SW-20: one schedule per key, whatever caused the reconcile.
#[test]
fn what_was_tried_waits_for_its_time() {
    use Difference as D;
    let failed = |since, wait| given(fin(lb())).known(Presence::Present).tried(since, wait);
    let hold = |seconds| Action::HoldBack(Duration::from_secs(seconds));
    check([
        ("same state", failed(D::Nothing, Some(7)), hold(7)),
        ("LBN-34, other nodes", failed(D::Backends, Some(7)), hold(7)),
        ("other Service", failed(D::Service, Some(7)), Action::Ensure(Wish::Wanted)),
        ("time has come", failed(D::Nothing, Some(0)), Action::Ensure(Wish::Wanted)),
        ("waits for a change", failed(D::Nothing, None), Action::Wait),
        ("waits for a change of the Service", failed(D::Backends, None), Action::Wait),
        ("changed", failed(D::Service, None), Action::Ensure(Wish::Wanted)),
        ("SVC-24", given(fin(lb()).deleting()).known(Presence::Present).tried_to_remove(Some(1)), hold(1)),
        (
            "refused to make, now to be removed",
            given(fin(lb()).deleting()).known(Presence::Present).tried(D::Nothing, None),
            Action::Remove(Removal::Unwanted),
        ),
        (
            "removal failed, wanted again",
            given(fin(lb())).known(Presence::Present).tried_to_remove(Some(9)),
            Action::Ensure(Wish::Wanted),
        ),
        (
            "as wanted again before its time",
            given(fin(lb())).applied(D::Nothing).tried(D::Backends, Some(9)),
            Action::Rest,
        ),
    ]);
}

/// S2: a waiting or refused edit pins no dead node to the balancer.
#[test]
fn what_is_applied_is_kept_up_while_its_edit_waits() {
    use Difference as D;
    let edited = |wait| given(fin(lb())).applied(D::Service).tried(D::Nothing, wait).other_nodes();
    let hold = |seconds| Action::HoldBack(Duration::from_secs(seconds));
    let update = || Action::Update(Wish::Upkeep);
    let up = |scene: Scene, wait: Option<u64>| {
        let until = wait.map(|wait| scene.facts.now + Duration::from_secs(wait));
        let intent = Intent::Apply(target());
        scene.lane(|lane| lane.upkeep = Some(Attempt { intent, until, in_progress: false }))
    };
    let rebuilt = |scene: Scene, known: bool| {
        scene.lane(|lane| {
            let applied = lane.applied.as_mut().expect("applied");
            applied.needs_ensure = true;
            applied.service = known.then(|| Arc::new(lb()));
        })
    };
    check([
        ("held back", edited(Some(7)), update()),
        ("refused by the provider", edited(None), update()),
        ("refused by the host", given(fin(lb())).applied(D::Service).refused().other_nodes(), update()),
        ("same nodes", given(fin(lb())).applied(D::Service).tried(D::Nothing, Some(7)), hold(7)),
        ("its time has come", edited(Some(0)), Action::Ensure(Wish::Wanted)),
        (
            "edited again",
            given(fin(lb())).applied(D::Service).tried(D::Service, None).other_nodes(),
            Action::Ensure(Wish::Wanted),
        ),
        ("the provider is working on it", edited(Some(7)).under_way(), hold(7)),
        (
            "only the nodes differ",
            given(fin(lb())).applied(D::Backends).tried(D::Nothing, Some(7)).other_nodes(),
            hold(7),
        ),
        ("failed, too: the earlier counts", up(edited(Some(7)), Some(3)), hold(3)),
        ("failed, too: the earlier counts", up(edited(Some(3)), Some(7)), hold(3)),
        ("failed, the edit is refused", up(edited(None), Some(3)), hold(3)),
        ("failed, tried again", up(edited(None), Some(0)), update()),
        ("both are refused", up(edited(None), None), Action::Wait),
        ("must be rebuilt", rebuilt(edited(Some(7)), true), Action::Ensure(Wish::Upkeep)),
        ("must be rebuilt, but nobody knows as what", rebuilt(edited(Some(7)), false), hold(7)),
        (
            "never applied",
            given(fin(lb())).known(Presence::Present).tried(D::Nothing, Some(7)).other_nodes(),
            hold(7),
        ),
    ]);
}
