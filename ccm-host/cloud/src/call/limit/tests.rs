use super::*;
use crate::method;

fn limits(reads: u32, rate: Option<(f64, u32)>) -> pb::Limits {
    pb::Limits {
        max_concurrent_reads: reads,
        reads: rate.map(|(per_second, burst)| pb::RateLimit { per_second, burst }),
        ..Default::default()
    }
}

fn limiter(limits: &pb::Limits) -> Limiter {
    let limiter = Limiter::new();
    limiter.configure(limits, &[], Instant::now());
    limiter
}

async fn at_once(limiter: &Limiter, most: u32) -> Vec<Permit> {
    let mut held = Vec::new();
    for _ in 0..most {
        match tokio::time::timeout(Duration::from_millis(1), limiter.permit(&method::LIST_ROUTES)).await {
            Ok(permit) => held.push(permit.unwrap()),
            Err(_) => break,
        }
    }
    held
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_are_limited_by_class() {
    let limiter = limiter(&limits(3, None));
    let held = at_once(&limiter, 9).await;
    assert_eq!(held.len(), 3);
    assert!(limiter.permit(&method::DELETE_LOAD_BALANCER).await.is_ok(), "another class has its own limit");
    assert!(limiter.permit(&method::GET_STATUS).await.is_ok(), "what costs nothing is not limited");
    drop(held);
    assert_eq!(at_once(&limiter, 9).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_waiting_costs_the_others_nothing() {
    let limiter = limiter(&limits(1, None));
    let held = limiter.permit(&method::LIST_ROUTES).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_secs(1), limiter.permit(&method::LIST_ROUTES)).await.is_err()
    );
    let next = limiter.permit(&method::LIST_ROUTES);
    drop(held);
    assert!(next.await.is_ok());
}

/// D38.
#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_after_its_burst() {
    let limiter = limiter(&limits(100, Some((10.0, 5))));
    let start = Instant::now();
    for _ in 0..25 {
        limiter.permit(&method::LIST_ROUTES).await.unwrap();
    }
    let took = start.elapsed();
    assert!((1.95..2.1).contains(&took.as_secs_f64()), "20 beyond the burst at 10 a second took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_makes_no_sense_is_ignored() {
    for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let limiter = limiter(&limits(100, Some((per_second, 1))));
        assert_eq!(at_once(&limiter, 50).await.len(), 50, "{per_second}");
    }
}

/// RATE_LIMITED pauses the class for everybody.
#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_the_class_and_ends() {
    let limiter = limiter(&limits(10, None));
    let start = Instant::now();
    assert_eq!(limiter.pause(Class::Read, "", Duration::from_secs(3), start), Duration::from_secs(3));
    assert_eq!(
        limiter.pause(Class::Read, "", Duration::from_secs(1), start),
        Duration::ZERO,
        "a shorter one adds nothing"
    );
    assert!(limiter.permit(&method::DELETE_LOAD_BALANCER).await.is_ok());
    assert_eq!(start.elapsed(), Duration::ZERO);
    limiter.permit(&method::LIST_ROUTES).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

/// K9.
#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_what_it_names() {
    let limiter = limiter(&limits(10, None));
    let minute = Duration::from_secs(60);
    limiter.pause(Class::Mutation, "LoadBalancers, Nonsense", minute, Instant::now());
    for method in
        [&method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS, &method::DELETE_LOAD_BALANCER]
    {
        assert_eq!(limiter.permit(method).await.unwrap_err(), minute, "{}", method.name);
    }
    for method in [&method::BATCH_ENSURE_ROUTES, &method::LIST_LOAD_BALANCERS] {
        assert!(limiter.permit(method).await.is_ok(), "{}", method.name);
    }
    limiter.pause(Class::Mutation, "Nonsense", minute, Instant::now());
    assert_eq!(limiter.permit(&method::BATCH_ENSURE_ROUTES).await.unwrap_err(), minute, "the safe choice");
}

/// K9: who waits for the end of a short pause keeps nobody waiting that it does not name.
#[tokio::test(start_paused = true)]
async fn a_short_pause_holds_up_no_other_kind() {
    let limiter = limiter(&limits(10, None));
    drop(limiter.permit(&method::BATCH_ENSURE_ROUTES).await.unwrap());
    let begun = Instant::now();
    limiter.pause(Class::Mutation, "LoadBalancers", Duration::from_secs(3), begun);
    let routes = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..3 {
            drop(limiter.permit(&method::BATCH_ENSURE_ROUTES).await.unwrap());
        }
        begun.elapsed()
    };
    let (ensured, routes) = tokio::join!(limiter.permit(&method::ENSURE_LOAD_BALANCER), routes);
    assert!(ensured.is_ok() && begun.elapsed() >= Duration::from_secs(3));
    assert!(routes < Duration::from_secs(1), "{routes:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_long_pause() {
    let limiter = limiter(&limits(10, None));
    limiter.pause(Class::Read, "", Duration::from_secs(60), Instant::now());
    assert_eq!(limiter.permit(&method::LIST_ROUTES).await.unwrap_err(), Duration::from_secs(60));
}

/// N7.
#[tokio::test(start_paused = true)]
async fn no_pause_is_longer_than_minutes_and_another_process_owes_none() {
    let limiter = limiter(&limits(10, None));
    assert_eq!(limiter.pause(Class::Read, "", Duration::MAX, Instant::now()), LONGEST_PAUSE);
    assert_eq!(limiter.permit(&method::LIST_ROUTES).await.unwrap_err(), LONGEST_PAUSE);
    limiter.lift_pauses();
    assert!(limiter.permit(&method::LIST_ROUTES).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_provider_is_spared_for_a_while() {
    let limiter = limiter(&limits(8, None));
    let count = async || at_once(&limiter, 20).await.len();
    for _ in 0..4 {
        limiter.overloaded(Instant::now());
    }
    assert_eq!(count().await, 4, "told by calls that ran together: halved once");
    tokio::time::advance(Duration::from_secs(10)).await;
    limiter.overloaded(Instant::now());
    assert_eq!(count().await, 2, "still overloaded");
    tokio::time::advance(RELIEF).await;
    assert_eq!(count().await, 4);
    tokio::time::advance(RELIEF).await;
    assert_eq!(count().await, 8);
    tokio::time::advance(RELIEF * 5).await;
    assert_eq!(count().await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_fills_no_bucket() {
    let limiter = limiter(&limits(100, Some((1.0, 5))));
    assert_eq!(at_once(&limiter, 50).await.len(), 5);
    limiter.configure(&limits(100, Some((1.0, 5))), &[], Instant::now());
    assert_eq!(at_once(&limiter, 50).await.len(), 0);
}

mod shares {
    use super::*;

    const ALL: [Kind; 4] = [Kind::LoadBalancers, Kind::Updates, Kind::Deletions, Kind::Routes];

    fn shares() -> Shares {
        let mut shares = Shares::default();
        shares.may_be(&ALL);
        shares
    }

    fn take(shares: &mut Shares, kind: Kind, limit: u32) -> u32 {
        (0..limit)
            .take_while(|_| {
                let turn = shares.is_turn_of(kind, limit, |_| true);
                if turn {
                    shares.begun(kind);
                }
                turn
            })
            .count() as u32
    }

    /// S4.
    #[test]
    fn each_kind_finds_a_permit_however_many_another_wants() {
        let mut shares = shares();
        assert_eq!(take(&mut shares, Kind::LoadBalancers, 8), 5);
        for kind in [Kind::Deletions, Kind::Routes, Kind::Updates] {
            assert_eq!(take(&mut shares, kind, 8), 1, "{kind:?}");
        }
        assert_eq!(take(&mut shares, Kind::Deletions, 8), 0, "all are taken");
        shares.ended(Kind::LoadBalancers);
        assert_eq!(take(&mut shares, Kind::Deletions, 8), 1, "none is left to a kind that has its own");
    }

    #[test]
    fn nothing_is_left_to_kinds_that_cannot_be() {
        let mut shares = Shares::default();
        shares.may_be(&[Kind::LoadBalancers]);
        assert_eq!(take(&mut shares, Kind::LoadBalancers, 8), 8);
    }

    #[test]
    fn few_permits_are_used_all_the_same() {
        for (limit, most) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(take(&mut shares(), Kind::LoadBalancers, limit), most, "of {limit}");
        }
    }

    #[test]
    fn of_the_kinds_that_wait_the_one_served_longest_ago_is_next() {
        let mut shares = shares();
        let two = [Kind::LoadBalancers, Kind::Deletions];
        two.iter().for_each(|kind| shares.waits(*kind, true));
        let mut order = Vec::new();
        for _ in 0..6 {
            let next = *two.iter().find(|kind| shares.is_turn_of(**kind, 1, |_| true)).unwrap();
            shares.begun(next);
            shares.ended(next);
            order.push(next);
        }
        assert_eq!(order[..2], order[2..4]);
        assert_eq!(order[..2], order[4..]);
        assert_ne!(order[0], order[1]);
        shares.waits(Kind::LoadBalancers, false);
        assert!((0..3).all(|_| {
            let turn = shares.is_turn_of(Kind::Deletions, 1, |_| true);
            shares.begun(Kind::Deletions);
            shares.ended(Kind::Deletions);
            turn
        }));
    }
}

#[test]
fn one_kind_leaves_a_permit_to_each_other_one() {
    let all = [Kind::Instances, Kind::LoadBalancers, Kind::Updates, Kind::Deletions, Kind::Routes];
    let rows: [(u32, &[Kind], usize); 6] =
        [(0, &all, 5), (8, &all, 5), (8, &all[..4], 6), (8, &[Kind::Routes], 8), (2, &all, 2), (1, &all, 1)];
    for (limit, kinds, want) in rows {
        let limits = pb::Limits { max_concurrent_mutations: limit, ..pb::Limits::default() };
        assert_eq!(most_of_a_kind(&limits, kinds), want, "{limit} {kinds:?}");
    }
}
