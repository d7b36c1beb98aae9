//! Parts that many answers have: items of a batch, machines, balancers, halves of lists, work that goes on.

use cloudprovider_sdk::proto::{
    InProgress, Instance, InstanceResult, LoadBalancer, LoadBalancerUpdateResult, RouteDeletion, RouteResult,
    UnreachableLocation, VolumeResult,
};

use super::{Answer, Reply, Request, Shot};

/// One item of the answer to a batch.
pub(crate) trait Item: Clone + Default + 'static {
    /// Under which it is answered.
    fn key(&mut self) -> &mut String;

    /// All items, if the answer has such.
    fn all(answer: &mut Answer) -> Option<&mut Vec<Self>>;
}

macro_rules! items {
    ($($rpc:ident: $item:ident by $key:ident;)*) => {$(
        impl Item for $item {
            fn key(&mut self) -> &mut String {
                &mut self.$key
            }

            fn all(answer: &mut Answer) -> Option<&mut Vec<Self>> {
                if let Answer::$rpc(answer) = answer { Some(&mut answer.results) } else { None }
            }
        }
    )*};
}

items! {
    BatchGetInstances: InstanceResult by key;
    BatchUpdateLoadBalancers: LoadBalancerUpdateResult by service_uid;
    BatchEnsureRoutes: RouteResult by key;
    BatchDeleteRoutes: RouteDeletion by key;
    BatchGetVolumeLabels: VolumeResult by key;
}

impl Reply {
    /// Changes the answer, if it is of this type.
    pub(crate) fn edit<T: 'static>(&mut self, change: impl FnOnce(&mut T)) {
        if let Some(answer) = self.outcome.as_mut().ok().and_then(Answer::of) {
            change(answer);
        }
    }

    /// Answers each item that was asked for, if they are of this type: what is left out is empty.
    pub(crate) fn fill<T: Item>(&mut self, request: &Request, make: impl Fn(&mut T)) {
        if let Some(all) = self.outcome.as_mut().ok().and_then(T::all) {
            for subject in request.subjects() {
                let mut item = T::default();
                *item.key() = subject.key;
                make(&mut item);
                all.push(item);
            }
        }
    }

    /// Changes the items of a batch that the fault is meant for, if they are of this type.
    pub(crate) fn each<T: Item>(&mut self, shot: &Shot<'_>, change: impl FnMut(&mut T)) {
        let all = self.outcome.as_mut().ok().and_then(T::all).into_iter().flatten();
        all.filter_map(|item| shot.hits(item.key()).then_some(item)).for_each(change);
    }

    /// Changes all machines that the fault is meant for.
    pub(crate) fn each_instance(&mut self, shot: &Shot<'_>, mut change: impl FnMut(&mut Instance)) {
        self.each(shot, |result: &mut InstanceResult| result.instance.iter_mut().for_each(&mut change));
        if let Ok(Answer::ListInstances(answer)) = &mut self.outcome {
            let meant = answer.instances.iter_mut().filter(|listed| shot.hits_named([&listed.node_name]));
            meant.filter_map(|listed| listed.instance.as_mut()).for_each(change);
        }
    }

    /// The balancers that an answer shows.
    pub(crate) fn balancers(&mut self) -> Vec<&mut LoadBalancer> {
        match &mut self.outcome {
            Ok(Answer::GetLoadBalancer(answer)) => answer.load_balancer.as_mut().into_iter().collect(),
            Ok(Answer::EnsureLoadBalancer(answer)) => answer.load_balancer.as_mut().into_iter().collect(),
            Ok(Answer::ListLoadBalancers(answer)) => answer.load_balancers.iter_mut().collect(),
            _ => Vec::new(),
        }
    }

    /// The parts of an answer that say that work goes on.
    pub(crate) fn going_on(&mut self) -> Vec<&mut Option<InProgress>> {
        match &mut self.outcome {
            Ok(Answer::EnsureLoadBalancer(answer)) => vec![&mut answer.in_progress],
            Ok(Answer::DeleteLoadBalancer(answer)) => vec![&mut answer.in_progress],
            Ok(Answer::AddSshKeyToAllInstances(answer)) => vec![&mut answer.in_progress],
            Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
                answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
            }
            Ok(Answer::BatchEnsureRoutes(answer)) => {
                answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
            }
            Ok(Answer::BatchDeleteRoutes(answer)) => {
                answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Leaves half of a list out; what the list says could not be asked.
    pub(crate) fn halve(&mut self) -> Option<&mut Vec<UnreachableLocation>> {
        fn half<T>(all: &mut Vec<T>) {
            all.truncate(all.len() / 2);
        }
        match &mut self.outcome {
            Ok(Answer::ListInstances(list)) => {
                half(&mut list.instances);
                Some(&mut list.unreachable)
            }
            Ok(Answer::ListLoadBalancers(list)) => {
                half(&mut list.load_balancers);
                Some(&mut list.unreachable)
            }
            Ok(Answer::ListRoutes(list)) => {
                half(&mut list.routes);
                Some(&mut list.unreachable)
            }
            _ => None,
        }
    }
}
