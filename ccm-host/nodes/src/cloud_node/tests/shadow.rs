use super::*;
use ccm_kube::shadow::{Shadow, ShadowMetrics, ShadowSettings};

const GRACE: Duration = Duration::from_secs(120);

/// Beside another controller, which does the same a moment later.
#[tokio::test(start_paused = true)]
async fn in_shadow_mode_all_is_decided_and_nothing_written() {
    let shadow = Shadow::new(&ShadowSettings { shadow: true, shadow_grace: GRACE }, ShadowMetrics::default());
    let fake = FakeProvider::new("fake");
    fake.set_answer("n", running("n"));
    let server = NodeServer::new([new_node("n")]).shadowed(&shadow);
    let scene = Scene::on(server, fake, vec![], stage::settings().nodes).await;
    let rows = || shadow.review(&scene.parts, ccm_base::clock::now()).0;
    let fields = || rows().into_iter().map(|row| row.field).collect::<Vec<_>>();
    scene.until(|_| fields().iter().any(|field| field == "/spec/providerID")).await;
    for field in ["/spec/taints", "/status/addresses"] {
        assert!(fields().iter().any(|seen| seen == field), "{field} of {:?}", fields());
    }
    sleep(GRACE * 3).await;
    let lines: Vec<_> = scene.server.take_calls().iter().map(apiserver::Asked::line).collect();
    assert!(lines.iter().all(|line| line.starts_with("GET ")), "{lines:?}");
    let asked = scene.questions();
    assert!(asked <= 10, "{asked} questions are a storm: the node is due every {:?}", shadow.again());
    assert!(scene.is_tainted("n"));

    // The other controller does what was held back.
    for row in rows() {
        scene.server.edit("n", |node| set(node, &row.field, row.would.clone()));
    }
    scene.until(|_| fields().is_empty()).await;
    let agreed = shadow.review(&scene.parts, ccm_base::clock::now()).1;
    assert!(agreed[0].count >= 3, "{agreed:?}");
    scene.stop().await;
}

fn set(object: &mut serde_json::Value, path: &str, value: serde_json::Value) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let mut at = object;
    for part in parent.split('/').skip(1) {
        at = &mut at[part];
    }
    at[key.replace("~1", "/")] = value;
}
