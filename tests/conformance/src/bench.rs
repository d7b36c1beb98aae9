//! How long each RPC takes: p50 and p99 over many consecutive calls.
//!
//! In: a session. Out: a row for each RPC that could be called. The numbers include the provider and its cloud; the row
//! of GetInfo shows what the suite itself adds.

use std::{future::Future, io::Write, rc::Rc, time::Duration};

use cloudprovider_proto::{
    defaults,
    discovery::v1::GetInfoRequest,
    service_names,
    v1alpha1::{GetCapabilitiesRequest, GetLoadBalancerRequest, GetStatusRequest, NodeRef},
};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    case::Stop,
    provider::count,
    session::Session,
    trial::{List, Trial},
};

/// How long one RPC took.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The RPC.
    pub rpc: String,
    /// The number of calls.
    pub calls: usize,
    /// How many of them failed; their time counts too.
    pub failed: usize,
    /// Half of the calls took at most this long.
    pub p50_micros: u128,
    /// 99 percent of the calls took at most this long.
    pub p99_micros: u128,
}

/// Calls each RPC this often.
pub async fn measure(session: &Rc<Session>, calls: usize) -> Vec<Row> {
    let t = &Trial::new(Rc::clone(session), "BENCH");
    let mut rows = vec![
        row("GetInfo", calls, async || {
            t.discovery().get_info(t.ask(GetInfoRequest::default())).await.is_ok()
        })
        .await,
        row("GetCapabilities", calls, async || {
            t.base().get_capabilities(t.ask(GetCapabilitiesRequest::default())).await.is_ok()
        })
        .await,
        row("GetStatus", calls, async || t.base().get_status(t.ask(GetStatusRequest {})).await.is_ok()).await,
    ];
    let serves = |name: &str| t.provider().serves(name);
    if serves(service_names::INSTANCES) {
        let most = count(t.provider().limits().max_batch_instances, defaults::MAX_BATCH);
        for size in [1, most] {
            let rpc = format!("BatchGetInstances of {size}");
            let node = |number: usize| NodeRef { name: format!("bench-{number}"), ..NodeRef::default() };
            let nodes: Vec<_> = (0..size).map(node).collect();
            let ask = async || t.instances().batch_get_instances(t.ask(t.batch(nodes.clone()))).await.is_ok();
            rows.push(row(rpc, calls, ask).await);
        }
    }
    if serves(service_names::LOAD_BALANCERS)
        && let Ok(more) = balancers(t, calls).await
    {
        rows.extend(more);
    }
    if serves(service_names::ROUTES) {
        rows.push(row("ListRoutes", calls, async || List::Routes.page(t, 0, "").await.is_ok()).await);
    }
    rows
}

async fn balancers(t: &Trial, calls: usize) -> Result<Vec<Row>, Stop> {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let get = || GetLoadBalancerRequest {
        cluster: Some(wanted.cluster.clone()),
        service: Some(wanted.service_ref()),
    };
    Ok(vec![
        row("EnsureLoadBalancer, unchanged", calls, async || t.ensure_once(&wanted).await.is_ok()).await,
        row("GetLoadBalancer", calls, async || {
            t.load_balancers().get_load_balancer(t.ask(get())).await.is_ok()
        })
        .await,
        row("ListLoadBalancers", calls, async || List::LoadBalancers.page(t, 0, "").await.is_ok()).await,
    ])
}

async fn row<F: Future<Output = bool>>(rpc: impl Into<String>, calls: usize, call: impl Fn() -> F) -> Row {
    let (mut times, mut failed) = (Vec::with_capacity(calls), 0);
    for _call in 0..calls.max(1) {
        let began = Instant::now();
        failed += usize::from(!call().await);
        times.push(began.elapsed());
    }
    times.sort();
    let at = |share: f64| -> Duration {
        let place = (times.len() as f64 * share).ceil() as usize;
        times.get(place.saturating_sub(1)).copied().unwrap_or_default()
    };
    Row {
        rpc: rpc.into(),
        calls: times.len(),
        failed,
        p50_micros: at(0.50).as_micros(),
        p99_micros: at(0.99).as_micros(),
    }
}

/// The rows as a table.
///
/// # Errors
///
/// Writing fails.
pub fn table(rows: &[Row], to: &mut impl Write) -> std::io::Result<()> {
    writeln!(to, "{:<32} {:>6} {:>7} {:>12} {:>12}", "RPC", "CALLS", "FAILED", "P50", "P99")?;
    for row in rows {
        let millis = |micros: u128| format!("{:.2} ms", micros as f64 / 1000.0);
        let (p50, p99) = (millis(row.p50_micros), millis(row.p99_micros));
        writeln!(to, "{:<32} {:>6} {:>7} {p50:>12} {p99:>12}", row.rpc, row.calls, row.failed)?;
    }
    Ok(())
}
