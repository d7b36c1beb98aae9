//! The breaches of sentences without a tag. The conformance suite's own tests show that each of the others fails a case.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use cloudprovider_sdk::proto::*;
use support::*;

impl Mock {
    /// Breaks this from now on, and nothing else.
    async fn breach(&self, rule: &str) {
        self.clear().await;
        let (rule, variant) = rule.split_once('/').unwrap_or((rule, ""));
        self.fault(&format!("breach,rule={rule},variant={variant}")).await;
    }
}

#[tokio::test]
async fn messages() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "max-message-bytes=4194304"]).await;
    mock.breach("unknown-enum").await;
    assert_eq!(mock.get_one("node-0").await.state, 99);
    mock.breach("unknown-field").await;
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Running, "unknown fields are skipped");
    mock.breach("message-size").await;
    let large = mock.get(&["node-0"]).await.unwrap_err();
    assert!(large.message().contains("message length too large"), "{large}");
    mock.breach("answer-parts/flat").await;
    let flat = mock.get(&["node-0"]).await.unwrap();
    assert!(flat.len() > 2_000_000, "{}", flat.len());
    mock.breach("answer-parts/deep").await;
    let deep = mock.get(&["node-0"]).await.unwrap();
    assert_eq!(deep.len(), 2);
    let unheard = &deep[1];
    assert!(unheard.instance.as_ref().unwrap().addresses.len() > 2_000_000);
    mock.breach("required-missing").await;
    assert_eq!(mock.get_one("node-0").await.instance, None);
}

#[tokio::test]
async fn frames() {
    let mock = Mock::start(&["--advertise", "bookmark-interval=100ms"]).await;
    mock.breach("unknown-frame").await;
    let request = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
    let mut stream = mock.instances().watch_instances(request).await.unwrap().into_inner();
    stream.message().await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().frame, None);
}
