//! One call, its entry in the log, and the faults that it meets.

use std::sync::Arc;

use cloudprovider_sdk::{Peer, ProviderError, code_name};
use http::request::Parts;
use prost::bytes::Bytes;
use tonic::Status;

use crate::{
    calls::{self, GONE, SHOWN_KEYS},
    contract::{Message, Method, Subject},
    effect::{Delivery, Memory, Reply, Shot, Turn},
    fault::Fault,
    mock::Mock,
};

/// Shared by all calls.
#[derive(Debug)]
pub(super) struct World {
    pub(super) mock: Mock,
    pub(super) memory: Memory,
}

/// A call, from its arrival on.
pub(super) struct Call {
    pub(super) world: Arc<World>,
    pub(super) method: &'static Method,
    subjects: Vec<Subject>,
    met: Vec<Arc<Fault>>,
    /// Only for a call that meets faults.
    request: Option<Message>,
}

/// The call's entry in the log. If it is dropped without an outcome, the caller has disconnected.
pub(super) struct Entry {
    world: Arc<World>,
    method: &'static Method,
    /// Its number; `None` once it has ended.
    open: Option<u64>,
}

impl Entry {
    pub(super) fn end(mut self, code: &str, reason: &str) {
        self.close(code, reason);
    }

    pub(super) fn end_with(self, status: &Status) {
        let reason = ProviderError::from_status(status).map_or("", |error| error.reason().wire_name());
        self.end(code_name(status.code()), reason);
    }

    fn close(&mut self, code: &str, reason: &str) {
        if let Some(sequence) = self.open.take() {
            self.world.mock.calls.end(self.method, sequence, code, reason, self.world.mock.now());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.close(GONE, "");
    }
}

/// Logs a call that arrives, and finds the faults that it meets.
pub(super) fn arrive(
    world: Arc<World>,
    method: &'static Method,
    request: Message,
    parts: &Parts,
) -> (Call, Entry) {
    let subjects = Subject::all(&request);
    let shown = subjects.iter().filter_map(|subject| subject.names.first().cloned());
    let header = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let met = world.mock.faults.meet(method, &subjects, fastrand::f64);
    let sequence = world.mock.calls.begin(
        method,
        calls::Call {
            at: world.mock.now(),
            peer: parts.extensions.get::<Peer>().map(peer).unwrap_or_default(),
            request_id: header("x-request-id"),
            cluster_uid: request.cluster_uid(),
            epoch: request.epoch(),
            items: subjects.len() as u64,
            keys: shown.take(SHOWN_KEYS).collect(),
            faults: met.iter().map(|fault| fault.label()).collect(),
            ..calls::Call::default()
        },
    );
    let entry = Entry { world: Arc::clone(&world), method, open: Some(sequence) };
    let request = (!met.is_empty()).then_some(request);
    (Call { world, method, subjects, met, request }, entry)
}

fn peer(peer: &Peer) -> String {
    match peer {
        Peer::Unix { uid, pid, .. } => {
            pid.map_or_else(|| format!("uid {uid}"), |pid| format!("uid {uid} pid {pid}"))
        }
        Peer::Tls { address, .. } => {
            address.map_or_else(|| "tls".to_owned(), |address| format!("tls {address}"))
        }
        _ => String::new(),
    }
}

impl Call {
    /// Waits for the latency of faults; that of the cloud is the provider's.
    pub(super) async fn wait(&self) {
        for fault in self.met.iter().filter(|fault| fault.kind == "latency") {
            let time = |key| fault.options.time(key).unwrap_or_default();
            tokio::time::sleep(time("time") + time("jitter").mul_f64(fastrand::f64())).await;
        }
    }

    fn shot<'a>(&'a self, fault: &'a Fault, frame: u64) -> Shot<'a> {
        let given = Some(fault.options.text("variant")).filter(|variant| !variant.is_empty());
        let default = || fault.effect().and_then(|effect| effect.choices.first().copied());
        let World { mock, memory } = &*self.world;
        Shot {
            cloud: &mock.cloud,
            now: mock.now(),
            advertised: &mock.advertised,
            memory,
            method: self.method,
            subjects: &self.subjects,
            on: &fault.on,
            variant: given.or_else(default).unwrap_or_default(),
            options: &fault.options,
            frame,
        }
    }

    /// Applies each fault in turn, until one of them decides.
    pub(super) fn before(&mut self) -> Turn {
        let Some(mut request) = self.request.take() else { return Turn::GoOn };
        let mut decided = Turn::GoOn;
        for fault in &self.met {
            let (Some(effect), shot) = (fault.effect(), self.shot(fault, 0)) else { continue };
            (effect.ask)(&mut request, &shot);
            if fault.options.flag("after_work") {
                continue;
            }
            decided = (effect.before)(&mut request, &shot);
            if !matches!(decided, Turn::GoOn) {
                break;
            }
        }
        self.request = Some(request);
        decided
    }

    /// The request as changed by faults; `None` if the call met none.
    pub(super) fn changed_request(&self) -> Option<Vec<u8>> {
        self.request.as_ref().map(Message::encode)
    }

    /// Applies the faults to an outcome, and returns how to deliver it. With `after_work`, what a fault does instead of the
    /// work happens here.
    pub(super) fn after(
        &self,
        outcome: Result<Bytes, Status>,
        frame: u64,
    ) -> (Result<Bytes, Status>, Delivery) {
        let Some(request) = &self.request else { return (outcome, Delivery::Send) };
        let mut reply = Reply::new(outcome.and_then(|answer| Message::answer(self.method, answer)));
        for fault in &self.met {
            let (Some(effect), shot) = (fault.effect(), self.shot(fault, frame)) else { continue };
            if fault.options.flag("after_work")
                && let Turn::Answer(instead) = (effect.before)(&mut request.clone(), &shot)
            {
                reply.outcome = *instead;
            }
            (effect.after)(request, &mut reply, &shot);
        }
        let Reply { outcome, tail, delivery } = reply;
        (outcome.map(|answer| [answer.encode(), tail].concat().into()), delivery)
    }
}
