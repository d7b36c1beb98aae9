//! The host forgets objects that it never asked about.

use super::*;

/// Lists, batches and streams report something else each time: memory must grow with the cluster, not with them.
/// `HOSTILE_ANSWERS` sets the number of such reports.
#[tokio::test(start_paused = true)]
async fn what_nobody_asked_about_is_not_remembered() {
    count_panics();
    let wanted = from_env("HOSTILE_ANSWERS", 60_000);
    let hostile = Hostile::flood();
    let mut scene = Scene::start(Arc::clone(&hostile), 0, Lies::InLists).await;
    // By then every list has arrived, and the Event queue has reached its size.
    sleep(Duration::from_secs(600)).await;
    let before = hostile.unknown();
    let mut sizes = Vec::new();
    for part in 0..=4 {
        while hostile.unknown() < before + wanted * part / 4 {
            sleep(Duration::from_secs(20)).await;
        }
        scene.assert_harmless(PANICS.get());
        sizes.push(scene.remembered());
    }
    println!("{} told of, remembered: {sizes:?}", hostile.unknown());
    let (first, last) = (sizes[0], sizes[4]);
    assert!(last < first + first / 4, "it grows: {sizes:?}");
    scene.end().await;
}
