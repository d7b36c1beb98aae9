//! Asks about a node's instance, whichever provider has it.
//!
//! In: a node and a question about it. Out: the answer and the providers behind it, or why there is none.
//! [`ccm_cloud`] batches concurrent questions about many nodes.

use std::sync::Arc;

use futures::future::join_all;

use ccm_cloud::{
    CloudError, Freshness, InstanceAnswer, InstanceQuery, InstanceState, InstanceView, NodeOwner, Provider,
    Providers,
};
use ccm_kube::{cache::Cache, node::Node};

/// The result of a question.
#[derive(Debug)]
pub enum Found {
    /// An answer, which may say that nothing is known.
    Answer {
        /// The provider that gave it; all candidates if none of them has the instance. Never empty.
        by: Vec<Arc<dyn Provider>>,
        answer: Box<InstanceAnswer>,
    },
    /// No provider gave a conclusive answer.
    Failed {
        /// The first failure.
        error: CloudError,
    },
    /// Several providers have an instance for the node, by name; it has no provider ID that would tell whose it is.
    Contested { by: Vec<String> },
    /// A provider has not introduced itself yet, or does not know whether it has the instance that another one has.
    Undecided,
    /// No provider of this host owns the node's provider ID, or the node is gone.
    Nobody,
}

/// Waits until the Node cache keeps what these providers want to know: a provider that identifies instances by a label
/// it has only just asked for would look for another instance, or none (N5).
pub async fn known_to(nodes: &Cache<Node>, providers: &[Arc<dyn Provider>]) {
    let mut waited = true;
    // Meanwhile another process may have taken a provider's place, and want to know more.
    while std::mem::take(&mut waited) {
        for provider in providers {
            let Some(info) = provider.info() else { continue };
            waited |= nodes.kept(provider.name(), &info.keep_of_nodes).await;
        }
    }
}

/// Asks the provider that owns the node. If that is uncertain, asks all candidates: the only one that has the instance
/// owns the node once every other provider has denied it.
pub async fn ask(
    providers: &Providers,
    nodes: &Cache<Node>,
    node: &Arc<Node>,
    view: InstanceView,
    freshness: Freshness,
) -> Found {
    let candidates = match providers.for_node(node) {
        NodeOwner::Undecided => return Found::Undecided,
        NodeOwner::Nobody => return Found::Nobody,
        owner => owner.possible(),
    };
    known_to(nodes, &candidates).await;
    // What was known of it before may be too little.
    let Some(node) = nodes.get(&node.name).filter(|now| now.uid == node.uid) else { return Found::Nobody };
    let asked = candidates.iter().map(async |provider| {
        let query = InstanceQuery { node: Arc::clone(&node), view, freshness };
        (Arc::clone(provider), provider.instance(query).await)
    });
    found(join_all(asked).await)
}

/// What the answers of all candidates come to.
fn found(answers: Vec<(Arc<dyn Provider>, Result<InstanceAnswer, CloudError>)>) -> Found {
    let claims = |answer: &Result<InstanceAnswer, CloudError>| {
        answer.as_ref().is_ok_and(|answer| ccm_cloud::has_instance(answer.state))
    };
    let (claimants, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| claims(answer));
    let denied = others.iter().all(|(_, answer)| denies(answer));
    match (claimants.as_slice(), denied) {
        ([], _) => {
            let (by, answers): (_, Vec<_>) = others.into_iter().unzip();
            match answers.into_iter().reduce(weaker) {
                Some(Ok(answer)) => Found::Answer { by, answer: Box::new(answer) },
                Some(Err(error)) => Found::Failed { error },
                None => Found::Nobody,
            }
        }
        ([(provider, Ok(answer))], true) => {
            Found::Answer { by: vec![Arc::clone(provider)], answer: Box::new(answer.clone()) }
        }
        ([_], _) => match others.into_iter().find(|(_, answer)| !denies(answer)) {
            Some((_, Err(error))) => Found::Failed { error },
            Some((_, Ok(InstanceAnswer { error: Some(error), .. }))) => Found::Failed { error },
            _ => Found::Undecided,
        },
        (several, _) => {
            Found::Contested { by: several.iter().map(|(provider, _)| provider.name().to_owned()).collect() }
        }
    }
}

fn denies(answer: &Result<InstanceAnswer, CloudError>) -> bool {
    use InstanceState as S;
    answer.as_ref().is_ok_and(|answer| matches!(answer.state, S::Absent | S::NotOwned))
}

/// Of two answers without an instance, the one that proves less: a node is absent only if every candidate says so.
fn weaker(
    one: Result<InstanceAnswer, CloudError>,
    other: Result<InstanceAnswer, CloudError>,
) -> Result<InstanceAnswer, CloudError> {
    let proves = |answer: &Result<InstanceAnswer, CloudError>| match answer {
        Err(_) => 0,
        Ok(answer) => match (answer.state, answer.authoritative) {
            (InstanceState::Absent, true) => 3,
            (InstanceState::Absent, false) => 2,
            (InstanceState::NotOwned, _) => 1,
            _ => 0,
        },
    };
    if proves(&other) < proves(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_server::NodeServer;
    use ccm_cloud::{
        ErrorReason,
        fake::{FakeProvider, error, instance, machine, method},
    };
    use ccm_kube::{
        fixtures::node,
        keep::{Keep, KeySet},
    };
    use tokio_util::sync::CancellationToken;

    fn answered(word: &str) -> impl Fn(&FakeProvider) {
        let word = word.to_owned();
        move |fake| match word.as_str() {
            "running" => fake.set_instance("n", InstanceState::Running, instance("x://1")),
            "absent" => fake.set_state("n", InstanceState::Absent),
            "rumour" => fake.set_answer(
                "n",
                InstanceAnswer { authoritative: false, ..machine(InstanceState::Absent, None) },
            ),
            "foreign" => fake.set_state("n", InstanceState::NotOwned),
            "unknown" => fake.set_state("n", InstanceState::Unspecified),
            "item error" => {
                let failed = Some(error(method::INSTANCE, Some(ErrorReason::CloudPermissionDenied)));
                let unknown = machine(InstanceState::Unspecified, None);
                fake.set_answer("n", InstanceAnswer { error: failed, ..unknown });
            }
            "error" => fake
                .fail_next(method::INSTANCE, error(method::INSTANCE, Some(ErrorReason::CloudApiUnavailable))),
            other => panic!("{other}"),
        }
    }

    /// D35.
    #[tokio::test]
    async fn of_several_providers_the_only_one_with_the_machine_answers() {
        let rows = [
            ("running", "running", "contested: a b"),
            ("running", "absent", "a: Running true"),
            ("absent", "running", "b: Running true"),
            ("rumour", "running", "b: Running true"),
            ("foreign", "running", "b: Running true"),
            ("error", "running", "failed"),
            ("running", "error", "failed"),
            ("unknown", "running", "undecided"),
            ("item error", "running", "failed"),
            ("running", "item error", "failed"),
            ("absent", "absent", "a b: Absent true"),
            ("absent", "rumour", "a b: Absent false"),
            ("rumour", "absent", "a b: Absent false"),
            ("absent", "foreign", "a b: NotOwned true"),
            ("foreign", "absent", "a b: NotOwned true"),
            ("absent", "unknown", "a b: Unspecified true"),
            ("unknown", "absent", "a b: Unspecified true"),
            ("foreign", "unknown", "a b: Unspecified true"),
            ("error", "absent", "failed"),
            ("absent", "error", "failed"),
        ];
        for (first, second, want) in rows {
            let (a, b) = (FakeProvider::new("a"), FakeProvider::new("b"));
            answered(first)(&a);
            answered(second)(&b);
            let found = ask(
                &registry(&a, &b),
                &filled().await,
                &Arc::new(node("n")),
                InstanceView::All,
                Freshness::ReadThrough,
            )
            .await;
            assert_eq!(words(&found), want, "{first}, {second}");
        }
    }

    /// N5.
    #[tokio::test]
    async fn what_a_provider_wants_to_know_is_known_before_it_is_asked() {
        let (a, b) = (FakeProvider::new("a"), FakeProvider::new("b"));
        a.change_info(|info| info.keep_of_nodes.labels = KeySet::keys(["example.com/machine"]));
        let (both, nodes) = (registry(&a, &b), filled().await);
        let wanted = a.info().unwrap().keep_of_nodes.clone();
        assert!(!nodes.holds(&wanted));
        let found =
            ask(&both, &nodes, &Arc::new(node("n")), InstanceView::Existence, Freshness::ReadThrough).await;
        assert_eq!(words(&found), "a b: Absent true");
        assert!(nodes.holds(&wanted));
    }

    /// N5: a provider may be replaced while the cache lists for the sake of its former process.
    #[tokio::test]
    async fn what_a_new_process_wants_to_know_is_known_before_it_is_asked() {
        let (a, b) = (FakeProvider::new("a"), FakeProvider::new("b"));
        let wants = |label: &str| {
            let labels = KeySet::keys([label]);
            a.change_info(|info| info.keep_of_nodes.labels = labels);
        };
        wants("example.com/former");
        let (both, nodes) = (registry(&a, &b), filled().await);
        let node = Arc::new(node("n"));
        let asked = ask(&both, &nodes, &node, InstanceView::Existence, Freshness::ReadThrough);
        let (found, ()) = tokio::join!(asked, async { wants("example.com/now") });
        assert_eq!(words(&found), "a b: Absent true");
        assert!(nodes.holds(&a.info().unwrap().keep_of_nodes));
    }

    /// N5: what the cache had before the provider said what it wants may be too little.
    #[tokio::test]
    async fn nobody_is_asked_about_a_node_that_is_gone() {
        let (a, b) = (FakeProvider::new("a"), FakeProvider::new("b"));
        let (both, nodes) = (registry(&a, &b), filled().await);
        for gone in [node("gone"), node("n").uid("former-uid")] {
            let found =
                ask(&both, &nodes, &Arc::new(gone), InstanceView::Existence, Freshness::ReadThrough).await;
            assert_eq!(words(&found), "nobody");
        }
        assert_eq!((a.calls().len(), b.calls().len()), (0, 0));
    }

    #[tokio::test]
    async fn nobody_is_asked_about_a_foreign_node() {
        let (a, b) = (FakeProvider::new("a"), FakeProvider::new("b"));
        let (both, nodes) = (registry(&a, &b), filled().await);
        let foreign = Arc::new(node("foreign").with_provider_id("other://1"));
        let found = ask(&both, &nodes, &foreign, InstanceView::All, Freshness::ReadThrough).await;
        assert_eq!(words(&found), "nobody");
        b.forget_info();
        let found = ask(&both, &nodes, &foreign, InstanceView::All, Freshness::ReadThrough).await;
        assert_eq!(words(&found), "undecided");
        assert_eq!((a.calls().len(), b.calls().len()), (0, 0));
    }

    /// A cache that has synced.
    async fn filled() -> Cache<Node> {
        let foreign = node("foreign").with_provider_id("other://1");
        NodeServer::new([node("n"), foreign]).cache(Keep::default(), &CancellationToken::new()).await
    }

    fn registry(a: &Arc<FakeProvider>, b: &Arc<FakeProvider>) -> Providers {
        Providers::new(vec![Arc::clone(a) as Arc<dyn Provider>, Arc::clone(b) as Arc<dyn Provider>])
    }

    fn words(found: &Found) -> String {
        match found {
            Found::Answer { by, answer } => {
                let by: Vec<_> = by.iter().map(|provider| provider.name()).collect();
                format!("{}: {:?} {}", by.join(" "), answer.state, answer.authoritative)
            }
            Found::Failed { .. } => "failed".to_owned(),
            Found::Contested { by } => format!("contested: {}", by.join(" ")),
            Found::Undecided => "undecided".to_owned(),
            Found::Nobody => "nobody".to_owned(),
        }
    }
}
