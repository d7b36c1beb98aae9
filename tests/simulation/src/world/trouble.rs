//! The faults of the host and of everything around it.

use anyhow::Result;
use apiserver::{Cut, Fault, History, Interception, View};
use provider_mock::{fault::Fault as CloudFault, serve::Mock};
use serde_json::json;
use tokio::time::Duration;

use super::{World, node, service};
use crate::{host::Host, plan::Step};

impl World {
    pub(super) fn disturb_host(&self, step: &Step) -> Result<()> {
        match step {
            Step::Crash(time) => {
                self.leaders(Host::kill);
                self.later(*time, Self::host_again);
            }
            Step::Restart => self.replace_host()?,
            Step::Hold(time) => self.hold(*time, |host, held| {
                host.api.hold(held);
                host.cloud.hold(held);
            }),
            Step::Overlap(time) => {
                let old: Vec<String> = self.hosts.borrow().iter().map(|host| host.name.clone()).collect();
                self.start_host()?;
                self.later(*time, move |world| {
                    let hosts = world.hosts.borrow();
                    hosts.iter().filter(|host| old.contains(&host.name)).for_each(Host::stop);
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Restarts after a crash, unless another host was started meanwhile; replicas always come back.
    pub(super) fn host_again(&self) {
        let mut alive = false;
        self.active(|_| alive = true);
        let is_missing = !alive || self.elects && !self.is_calm.get();
        if is_missing && let Err(error) = self.start_host() {
            self.record.broken("a host cannot be started", format!("{error:#}"));
        }
    }

    /// Applies to the leading host, or to all.
    pub(super) fn hold(&self, time: Duration, switch: impl Fn(&Host, bool) + Copy + 'static) {
        let mut names = Vec::new();
        self.leaders(|host| {
            switch(host, true);
            names.push(host.name.clone());
        });
        self.later(time, move |world| {
            let hosts = world.hosts.borrow();
            hosts.iter().filter(|host| names.contains(&host.name)).for_each(|host| switch(host, false));
        });
    }

    pub(super) fn disturb_provider(&self, step: &Step) {
        match step {
            Step::ProviderCrash(time) => {
                self.provider.kill();
                self.later(*time, |world| world.provider.start());
            }
            Step::ProviderHold(time) => self.hold(*time, |host, held| host.cloud.hold(held)),
            Step::ProviderCut => self.active(|host| host.cloud.break_connections()),
            _ => {}
        }
    }

    pub(super) fn fault(&self, mock: &Mock, time: Duration, spec: CloudFault) {
        let (id, mock) = (mock.faults.add(spec).id, mock.clone());
        self.later(time, move |_| _ = mock.faults.remove(|one, _kind| one == id));
    }

    pub(super) fn spoil(&self, step: &Step) -> Result<()> {
        let (name, method, hangs) = match step {
            Step::SpoilNode(number, hangs) => (node(*number), "BatchGetInstances", *hangs),
            Step::SpoilService(number, hangs) => (service(*number), "BatchUpdateLoadBalancers", *hangs),
            _ => return Ok(()),
        };
        let kind = if hangs { "hang" } else { "error,reason=INTERNAL_ERROR" };
        let spec: CloudFault = format!("{kind},method={method},on={name}").parse()?;
        self.mock.faults.add(spec.clone());
        self.spoilt.borrow_mut().insert(name, spec);
        Ok(())
    }

    pub(super) fn disturb_cloud(&self, step: &Step) -> Result<()> {
        let (bad, good) = match step {
            Step::Unreachable(_) => (json!({"cloud_reachable": false}), json!({"cloud_reachable": true})),
            Step::Credentials(_) => (json!({"credentials": "expired"}), json!({"credentials": "valid"})),
            _ => (json!({"serving": false}), json!({"serving": true})),
        };
        self.condition(&bad)?;
        self.later(step.lasts(), move |world| {
            let _fits_as_the_first_did = world.condition(&good);
        });
        Ok(())
    }

    pub(super) fn api_down(&self, time: Duration, compacted: bool) {
        self.server.stop();
        self.away.set(true);
        self.later(time, move |world| {
            world.server.start(if compacted { History::Compacted } else { History::Kept });
            world.away.set(false);
        });
    }

    pub(super) fn disturb_api(&self, step: &Step) {
        match step {
            Step::ApiHold(time) => self.hold(*time, |host, held| host.api.hold(held)),
            Step::ApiCutWatches => self.active(|host| host.faults.cut_watches(Cut::Break)),
            Step::ApiSilent(time) => self.hold(*time, |host, on| host.faults.silence_watches(on)),
            Step::ApiLagging(time, behind) => {
                self.active(|host| host.faults.view(View::Late(*behind)));
                self.later(*time, |world| world.active(|host| host.faults.view(View::Current)));
            }
            Step::ApiNoStreamingLists(time) => {
                self.hold(*time, |host, off| host.faults.streaming_lists(!off));
            }
            Step::ApiLossy(time, percent) => {
                let mut kept: Vec<Interception> = Vec::new();
                let percent = *percent;
                self.active(|host| kept.push(host.faults.intercept(move |_| lossy(percent))));
                self.later(*time, move |_| drop(kept));
            }
            _ => {}
        }
    }
}

fn lossy(percent: u8) -> Option<Fault> {
    if fastrand::u8(..100) >= percent {
        return None;
    }
    let time = Duration::from_millis(fastrand::u64(1..8000));
    Some(match fastrand::u8(..7) {
        0 => Fault::Lose,
        1 => Fault::LoseAnswer,
        2 => Fault::Delay(time),
        3 => Fault::AnswerAfter(time),
        4 => Fault::Hang,
        5 => Fault::HangAfter,
        _ => Fault::Refuse(apiserver::Refusal::too_many_requests(Duration::from_secs(2))),
    })
}
