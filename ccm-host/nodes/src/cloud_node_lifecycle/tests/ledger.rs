//! Allowed deletions count across restarts and concurrent processes.

use super::*;

const LEDGER: &str = "cloud-node-lifecycle-deletions";

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("n{index:02}")).collect()
}

/// Forty silent nodes whose instances run: two of them may be deleted within a window.
async fn forty(prepare: impl FnOnce(&NodeServer)) -> Scene {
    let fake = FakeProvider::new("fake");
    for name in names(40) {
        fake.set_instance(&name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    let server = NodeServer::new(names(40).iter().map(|name| silent(name)));
    prepare(&server);
    Scene::on(server, fake, vec![], settings()).await
}

impl Scene {
    fn lose(&self, names: &[&str]) {
        for name in names {
            self.fake.set_state(name, InstanceState::Absent);
        }
    }

    fn gone(&self) -> Vec<String> {
        names(40).into_iter().filter(|name| self.server.node(name).is_none()).collect()
    }

    fn ledger(&self) -> String {
        self.server.record(LEDGER)["data"]["fake"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether nodes are held back because the share was used up.
    fn is_used_up(&self, nodes: usize) -> bool {
        self.is_held(Rule::Share, nodes)
    }
}

fn ago(seconds: i64) -> i64 {
    Timestamp::now().as_second() - seconds
}

/// D13.
#[tokio::test(start_paused = true)]
async fn a_restart_does_not_forget_what_was_deleted() {
    let scene = forty(|_| {}).await;
    scene.lose(&["n00", "n01"]);
    scene.passes(3).await;
    assert_eq!(scene.gone(), ["n00", "n01"]);
    assert!(scene.ledger().contains("n00-uid:") && scene.ledger().contains("n01-uid:"), "{}", scene.ledger());
    let scene = scene.restart().await;
    scene.lose(&["n02"]);
    scene.passes(5).await;
    assert_eq!((scene.gone().len(), scene.is_used_up(1)), (2, true), "its two have gone before");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_long_ago_takes_no_place() {
    for (age, gone) in [(590, 0), (601, 2)] {
        let text = format!("x:{},y:{}", ago(age), ago(age));
        let scene = forty(|server| server.put_record(LEDGER, json!({ "fake": text, "other": "z:1" }))).await;
        scene.lose(&["n00", "n01"]);
        scene.passes(2).await;
        assert_eq!((scene.gone().len(), scene.is_used_up(2)), (gone, gone == 0), "{age} s ago");
        assert_eq!(scene.server.record(LEDGER)["data"]["other"], "z:1", "another provider's is its own");
        scene.stop().await;
    }
}

/// The former process recorded its deletions, and ended before it made them.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_allowed_before_takes_no_second_place() {
    let text = format!("n00-uid:{}", ago(10));
    let scene = forty(|server| server.put_record(LEDGER, json!({ "fake": text }))).await;
    scene.lose(&["n00", "n01"]);
    scene.passes(3).await;
    assert_eq!(scene.gone(), ["n00", "n01"]);
    scene.stop().await;
}

/// Two hosts that both believe to be the leader: the second to write reads again before it deletes anything.
#[tokio::test(start_paused = true)]
async fn what_another_host_allows_is_met() {
    let scene = forty(|_| {}).await;
    scene.lose(&["n00"]);
    scene.passes(3).await;
    assert_eq!(scene.gone(), ["n00"]);
    let others = format!("{},x:{}", scene.ledger(), ago(0));
    scene.server.put_record(LEDGER, json!({ "fake": others }));
    scene.lose(&["n01"]);
    scene.passes(5).await;
    assert_eq!((scene.gone().len(), scene.is_used_up(1)), (1, true));
    assert_eq!(scene.ledger(), others, "and what it wrote stands");
    scene.stop().await;
}

/// A deletion that cannot be recorded is not made, and reported at the pace of a failure.
#[tokio::test(start_paused = true)]
async fn without_the_ledger_nothing_is_deleted() {
    for readable in [false, true] {
        let scene = forty(|_| {}).await;
        if readable {
            scene.lose(&["n00"]);
            scene.passes(3).await;
            scene.events();
        }
        scene.server.refuse_records(true);
        scene.lose(&["n01"]);
        scene.server.take_calls();
        scene.passes(10).await;
        assert!(scene.server.node("n01").is_some());
        assert_eq!(scene.server.take_lines(), [""; 0]);
        let failed = (Kind::Warning, "DeletingNodeFailed");
        assert_eq!(scene.events(), vec![failed; 3], "at 0, 10 and 30 s");
        scene.server.refuse_records(false);
        scene.passes(6).await;
        assert!(scene.server.node("n01").is_none());
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_makes_no_sense_is_for_a_person() {
    let scene = forty(|server| server.put_record(LEDGER, json!({ "fake": "nonsense" }))).await;
    scene.lose(&["n00"]);
    scene.passes(2).await;
    let (_, _, message) = scene.events.take().remove(0);
    assert!(message.contains("kube-system/cloud-node-lifecycle-deletions, key fake"), "{message}");
    assert!(message.contains("remove the key"), "{message}");
    scene.server.put_record(LEDGER, json!({}));
    scene.passes(5).await;
    assert_eq!(scene.gone(), ["n00"]);
    scene.stop().await;
}

/// Most clusters lose no node for weeks; meanwhile the ledger is neither read nor written.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_loses_nothing_has_no_ledger() {
    let scene = forty(|server| server.refuse_records(true)).await;
    scene.passes(20).await;
    assert_eq!((scene.events(), scene.server.take_lines()), (vec![], vec![]));
    scene.stop().await;
}
