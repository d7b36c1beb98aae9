//! The simulation in CI, and a test that a seed is always the same run. `cargo simulate -- --seeds 10000` runs more.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a helper of tests")]

use simulation::fleet::Fleet;

fn fleet() -> Fleet {
    Fleet::new(env!("CARGO_BIN_EXE_simulate"))
}

fn break_no_rule(seeds: std::ops::Range<u64>) {
    let failures = fleet().run_all(seeds.clone(), |line| println!("{line}")).unwrap();
    let reports: Vec<String> = failures.iter().map(simulation::fleet::Failure::report).collect();
    assert!(
        reports.is_empty(),
        "{} of the seeds {seeds:?} failed\n\n{}",
        reports.len(),
        reports.join("\n\n")
    );
}

#[test]
fn three_hundred_seeds_break_no_rule() {
    break_no_rule(0..300);
}

#[test]
fn a_seed_is_always_the_same_run() {
    for seed in 1000..1006 {
        let [one, other] = [(); 2].map(|()| fleet().run(seed, &[]).unwrap());
        assert_eq!((one.fingerprint, one.lines), (other.fingerprint, other.lines), "seed {seed}");
    }
}
