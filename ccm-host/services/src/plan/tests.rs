use super::*;
use crate::{
    row::{Doubt, Known, RowKey},
    service::FINALIZER,
};
use ccm_kube::fixtures::service;

/// The class of no class, as digests have it.
const CLASS: &str = "e3b0c442";

fn digest(service: &str, nodes: &str) -> String {
    format!("{CLASS}-{service}-{nodes}")
}

fn lb() -> Service {
    service("web").load_balancer().with_port("", 80)
}

fn fin(service: Service) -> Service {
    service.with_finalizer(FINALIZER)
}

/// In words, so that each row of a table reads as a sentence. Wanted is the Service `s2` with the nodes `n2`.
#[derive(Debug, Clone)]
struct Scene(View);

fn given(service: Service) -> Scene {
    Scene(View {
        service: Arc::new(service),
        owner: Owner::Ours("cloud".to_owned()),
        standing: ProviderStatus::Serving,
        row: None,
        others: Others::None,
        wanted: Some(Wanted { digest: digest("s2", "n2"), refusal: None }),
        published: true,
        is_full: false,
        now: Instant::now(),
    })
}

impl Scene {
    fn owner(mut self, owner: Owner) -> Self {
        self.0.owner = owner;
        self
    }

    fn of_others(self) -> Self {
        self.owner(Owner::Others)
    }

    fn others(mut self, others: Others) -> Self {
        self.0.others = others;
        self
    }

    fn provider(mut self, standing: ProviderStatus) -> Self {
        self.0.standing = standing;
        self
    }

    fn known(mut self, known: Known) -> Self {
        let mut row = Row::new(RowKey::new("web-uid", "cloud"), self.0.service.key.clone(), known);
        row.last = Some(Arc::clone(&self.0.service));
        self.0.row = Some(Arc::new(row));
        self
    }

    fn asked(self) -> Self {
        self.known(Known::Asked { made_as: None })
    }

    fn applied(self, service: &str, nodes: &str) -> Self {
        let digest = digest(service, nodes);
        let doubt = Doubt::default();
        self.known(Known::Applied(Applied { digest, service: None, needs_ensure: false, doubt }))
    }

    fn row(mut self, change: impl FnOnce(&mut Row)) -> Self {
        change(Arc::make_mut(self.0.row.as_mut().expect("a row")));
        self
    }

    fn doubt(self, service: bool, backends: bool) -> Self {
        self.row(|row| {
            let Known::Applied(applied) = &mut row.known else { panic!("applied") };
            applied.doubt = Doubt { service, backends, ..Doubt::default() };
        })
    }

    fn attempt(&self, digest: String, wait: Option<u64>, end: End) -> Attempt {
        let until = wait.map(|wait| self.0.now + Duration::from_secs(wait));
        Attempt { digest, of_backends: false, end, at: self.0.now, since: self.0.now, until }
    }

    fn tried(self, service: &str, nodes: &str, wait: Option<u64>) -> Self {
        let attempt = self.attempt(digest(service, nodes), wait, End::Failed);
        self.row(|row| _ = row.tried.insert(Goal::Wanted, attempt))
    }

    fn ended(self, end: End) -> Self {
        self.row(|row| row.tried.get_mut(&Goal::Wanted).expect("an attempt").end = end)
    }

    fn of_backends(self) -> Self {
        self.row(|row| row.tried.get_mut(&Goal::Wanted).expect("an attempt").of_backends = true)
    }

    fn kept_up(self, wait: Option<u64>) -> Self {
        let attempt = self.attempt(digest("s1", "n2"), wait, End::Failed);
        self.row(|row| _ = row.tried.insert(Goal::Upkeep, attempt))
    }

    fn rebuilt(self, known: bool) -> Self {
        self.row(|row| {
            let Known::Applied(applied) = &mut row.known else { panic!("applied") };
            applied.needs_ensure = true;
            applied.service = known.then(|| Arc::new(lb()));
        })
    }

    fn unpublished(mut self) -> Self {
        self.0.published = false;
        self
    }

    fn not_listed(mut self) -> Self {
        self.0.wanted = None;
        self
    }

    fn refused(mut self) -> Self {
        self.0.wanted.as_mut().expect("wanted").refusal = Some("bad".to_owned());
        self
    }

    fn full(mut self) -> Self {
        self.0.is_full = true;
        self
    }

    /// The plan in words.
    fn plan(&self) -> String {
        match plan(&self.0) {
            Plan::Rest => "rest".to_owned(),
            Plan::Leave => "leave".to_owned(),
            Plan::Publish => "publish".to_owned(),
            Plan::Free { status: true } => "free".to_owned(),
            Plan::Free { status: false } => "free, status stays".to_owned(),
            Plan::Search => "search".to_owned(),
            Plan::AskOwner => "ask owner".to_owned(),
            Plan::Ask(Ask { goal, verb, digest, .. }) => {
                let parts: Vec<_> = digest.split('-').skip(1).collect();
                format!("{verb:?} {goal:?} {}", parts.join(" ")).to_lowercase()
            }
            Plan::Wait(Wait { until, why }) => match until {
                Until::At(at) => format!("wait {}", (at - self.0.now).as_secs()),
                Until::Corrected => format!("refuse: {why}"),
                Until::Change => "wait for a change".to_owned(),
                Until::Provider => format!("wait: {why}"),
                Until::Slot => "wait for a place".to_owned(),
                Until::Removal => "wait for a removal".to_owned(),
            },
        }
    }
}

fn check(rows: impl IntoIterator<Item = (&'static str, Scene, &'static str)>) {
    for (id, scene, want) in rows {
        assert_eq!(scene.plan(), want, "{id}: {scene:#?}");
    }
}

fn away() -> ProviderStatus {
    ProviderStatus::Disconnected("away".to_owned())
}

fn frozen() -> ProviderStatus {
    ProviderStatus::Frozen("frozen".to_owned())
}

#[test]
fn what_a_service_asks_for() {
    let udp = || {
        let mut service = lb();
        service.spec.ports[0].protocol = "UDP".to_owned();
        service
    };
    check([
        // Differs on purpose: upstream asks the cloud, which has nothing either.
        ("SVC-1", given(service("web")), "leave"),
        ("SVC-2", given(udp()), "ensure wanted s2 n2"),
        ("SVC-3", given(lb()), "ensure wanted s2 n2"),
        ("SVC-5", given(lb().with_class("other/lb")).of_others(), "leave"),
        ("SVC-6, nothing is known", given(fin(service("web"))), "search"),
        ("SVC-7", given(fin(lb()).deleting()).others(Others::Leaving), "wait for a removal"),
        ("SVC-7, removed", given(fin(lb()).deleting()).others(Others::Removed), "free"),
        ("SVC-8", given(fin(lb())), "ensure wanted s2 n2"),
        ("SVC-9", given(lb()).known(Known::Unsure), "ensure wanted s2 n2"),
        ("SVC-10", given(fin(lb())).applied("s1", "n2"), "ensure wanted s2 n2"),
        ("deleted before it had a balancer", given(lb().deleting()), "leave"),
        ("SW-18", given(fin(lb())).applied("s2", "n2"), "rest"),
        ("status lost", given(fin(lb())).applied("s2", "n2").unpublished(), "publish"),
        ("SW-14", given(fin(lb())).asked(), "ensure wanted s2 n2"),
        ("SVC-18", given(lb()).others(Others::Leaving), "wait for a removal"),
        ("bad range", given(lb()).refused(), "refuse: bad"),
        (
            "bad range, being deleted",
            given(fin(lb()).deleting()).refused().others(Others::Leaving),
            "wait for a removal",
        ),
        ("SW-17", given(fin(lb())).known(Known::Absent), "ensure wanted s2 n2"),
        ("removed, wanted again", given(fin(lb())).known(Known::Removed), "ensure wanted s2 n2"),
    ]);
}

#[test]
fn what_a_change_of_nodes_asks_for() {
    check([
        ("LBN-2", given(service("web")), "leave"),
        ("LBN-8", given(fin(lb())).applied("s2", "n2"), "rest"),
        ("LBN-9", given(fin(lb())).applied("s2", "n1"), "update wanted s2 n2"),
        // SW-13: differs on purpose, a balancer being removed gets no new nodes.
        (
            "LBN-33",
            given(fin(lb()).deleting()).applied("s2", "n1").others(Others::Leaving),
            "wait for a removal",
        ),
        ("both changed", given(fin(lb())).applied("s1", "n1"), "ensure wanted s2 n2"),
        (
            "an update is in doubt",
            given(fin(lb())).applied("s2", "n2").doubt(false, true),
            "update wanted s2 n2",
        ),
        (
            "an Ensure is in doubt",
            given(fin(lb())).applied("s2", "n2").doubt(true, false),
            "ensure wanted s2 n2",
        ),
    ]);
}

/// SW-3, SW-4.
#[test]
fn services_of_others_are_touched_only_for_a_balancer_of_ours() {
    let class = || lb().with_class("other/lb");
    check([
        // Differs on purpose: upstream deletes a balancer that another implementation may have made.
        ("SVC-31", given(class()).of_others().asked(), "leave"),
        ("SVC-31", given(fin(class())).of_others(), "leave"),
        ("SVC-32", given(fin(class()).deleting()).of_others(), "ask owner"),
        ("SVC-32", given(class().deleting()).of_others(), "leave"),
        ("SW-3", given(fin(class())).of_others().others(Others::Leaving), "wait for a removal"),
        ("SW-3", given(fin(class())).of_others().others(Others::Removed), "free, status stays"),
        ("SVC-32, frozen", given(fin(class()).deleting()).of_others().provider(frozen()), "wait: frozen"),
        ("S10", given(fin(service("web"))).of_others(), "leave"),
        ("not known whose", given(fin(class())).owner(Owner::Undecided("late".to_owned())), "wait: late"),
    ]);
}

#[test]
fn a_provider_that_cannot_be_asked_is_waited_for() {
    check([
        ("away, to be made", given(lb()).provider(away()), "wait: away"),
        ("frozen, to be made", given(lb()).provider(frozen()), "ensure wanted s2 n2"),
        (
            "frozen, other nodes",
            given(fin(lb())).applied("s2", "n1").provider(frozen()),
            "update wanted s2 n2",
        ),
        ("SW-18", given(fin(lb())).not_listed(), "wait: the load balancers have not been listed yet"),
        (
            "F1: another may have it",
            given(fin(lb())).others(Others::MayBeAt("edge".to_owned())),
            "wait: provider \"edge\" may have its load balancer, and has not listed its load balancers yet",
        ),
    ]);
}

/// SW-15, SW-20: one schedule per key, whatever caused the run.
#[test]
fn what_was_tried_waits_for_its_time() {
    let failed = |service, nodes, wait| given(fin(lb())).asked().tried(service, nodes, wait);
    check([
        ("same state", failed("s2", "n2", Some(7)), "wait 7"),
        ("LBN-34, other nodes", failed("s2", "n1", Some(7)), "wait 7"),
        ("other Service", failed("s1", "n2", Some(7)), "ensure wanted s2 n2"),
        ("time has come", failed("s2", "n2", Some(0)), "ensure wanted s2 n2"),
        ("waits for a change", failed("s2", "n2", None), "wait for a change"),
        ("waits for a change of the Service", failed("s2", "n1", None), "wait for a change"),
        ("changed", failed("s1", "n2", None), "ensure wanted s2 n2"),
        ("served elsewhere", failed("s2", "n2", None).ended(End::Elsewhere), "rest"),
        ("served elsewhere, changed", failed("s1", "n2", None).ended(End::Elsewhere), "ensure wanted s2 n2"),
        (
            "as wanted again before its time",
            given(fin(lb())).applied("s2", "n2").tried("s2", "n1", Some(9)),
            "rest",
        ),
        (
            "F12: an update was refused, and the nodes have changed since",
            given(fin(lb())).applied("s2", "n1").tried("s2", "n3", None).of_backends(),
            "wait 5",
        ),
        (
            "F12: the same nodes",
            given(fin(lb())).applied("s2", "n1").tried("s2", "n2", None).of_backends(),
            "wait for a change",
        ),
        ("F2: no place", given(lb()).full(), "wait for a place"),
        ("F2: an update needs none", given(fin(lb())).applied("s2", "n1").full(), "update wanted s2 n2"),
    ]);
}

/// S2: a waiting or refused edit pins no dead node to the balancer.
#[test]
fn what_is_applied_is_kept_up_while_its_edit_waits() {
    let edited = |wait| given(fin(lb())).applied("s1", "n1").tried("s2", "n2", wait);
    let update = "update upkeep s1 n2";
    check([
        ("held back", edited(Some(7)), update),
        ("refused by the provider", edited(None), update),
        ("refused by the host", given(fin(lb())).applied("s1", "n1").refused(), update),
        ("F2: without a place", given(fin(lb())).applied("s1", "n1").full(), update),
        ("F2: without a place, same nodes", given(fin(lb())).applied("s1", "n2").full(), "wait for a place"),
        ("same nodes", given(fin(lb())).applied("s1", "n2").tried("s2", "n2", Some(7)), "wait 7"),
        (
            "F11: the last update is in doubt",
            given(fin(lb())).applied("s1", "n2").tried("s2", "n2", Some(7)).doubt(true, true),
            update,
        ),
        ("its time has come", edited(Some(0)), "ensure wanted s2 n2"),
        ("edited again", given(fin(lb())).applied("s1", "n1").tried("s3", "n2", None), "ensure wanted s2 n2"),
        ("the provider is working on it", edited(Some(7)).ended(End::InProgress), "wait 7"),
        (
            "the provider is working on it for long, and the nodes are the same",
            given(fin(lb())).applied("s2", "n1").tried("s2", "n2", Some(300)).ended(End::InProgress),
            "wait 300",
        ),
        (
            "the provider is working on it for long: other nodes wait no longer than a moment",
            given(fin(lb())).applied("s2", "n1").tried("s2", "n3", Some(300)).ended(End::InProgress),
            "wait 15",
        ),
        ("only the nodes differ", given(fin(lb())).applied("s2", "n1").tried("s2", "n2", Some(7)), "wait 7"),
        ("failed, too: the earlier counts", edited(Some(7)).kept_up(Some(3)), "wait 3"),
        ("failed, too: the earlier counts", edited(Some(3)).kept_up(Some(7)), "wait 3"),
        ("failed, the edit is refused", edited(None).kept_up(Some(3)), "wait 3"),
        ("failed, tried again", edited(None).kept_up(Some(0)), update),
        ("both are refused", edited(None).kept_up(None), "wait for a change"),
        ("must be rebuilt", edited(Some(7)).rebuilt(true), "ensure upkeep s1 n2"),
        ("must be rebuilt, but its Service is unknown", edited(Some(7)).rebuilt(false), "wait 7"),
        ("never applied", given(fin(lb())).asked().tried("s2", "n2", Some(7)), "wait 7"),
    ]);
}

/// A wrong annotation changes nothing, and nodes follow.
#[test]
fn a_misnamed_provider_is_reported() {
    let misnamed = |kept| Owner::Misnamed { kept, why: "typo".to_owned() };
    check([
        ("nothing yet", given(lb()).owner(misnamed(false)), "refuse: typo"),
        ("as it was", given(fin(lb())).owner(misnamed(true)).applied("s2", "n2"), "refuse: typo"),
        ("lost", given(fin(lb())).owner(misnamed(true)).applied("s2", "n2").unpublished(), "refuse: typo"),
        ("other nodes", given(fin(lb())).owner(misnamed(true)).applied("s2", "n1"), "update wanted s2 n2"),
    ]);
}
