//! Remembers the class of each Service that changed its type but still has the finalizer.
//!
//! In: changes of Services. Out: the class that was cleared with the type, which tells whose finalizer it is. A
//! restart loses this; then the finalizer counts as ours, as it does for upstream.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::needs::{has_finalizer, is_load_balancer};
use crate::kube::{
    cache::Change,
    service::{ObjectKey, Service},
};

#[derive(Debug, Default)]
pub(super) struct FormerClasses(Mutex<HashMap<ObjectKey, Former>>);

#[derive(Debug)]
struct Former {
    uid: String,
    class: Option<String>,
}

impl FormerClasses {
    /// Records a change of a Service. Never blocks.
    pub(super) fn see(&self, change: &Change<Service>) {
        let service = change.object();
        let waits_for_cleanup = has_finalizer(service) && !is_load_balancer(service);
        match change {
            Change::Updated { old, new } if waits_for_cleanup && old.uid == new.uid => {
                if is_load_balancer(old) {
                    let class = old.spec.load_balancer_class.clone();
                    self.0.lock().insert(new.key.clone(), Former { uid: new.uid.clone(), class });
                }
            }
            _ => _ = self.0.lock().remove(&service.key),
        }
    }

    /// The Service's former class, if known; the inner `None` means that it had none.
    pub(super) fn of(&self, service: &Service) -> Option<Option<String>> {
        let known = self.0.lock();
        known.get(&service.key).filter(|former| former.uid == service.uid).map(|former| former.class.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{controllers::service_lb::needs::FINALIZER, kube::fixtures::service};

    #[test]
    fn a_class_is_known_for_as_long_as_the_finalizer_stands() {
        let classes = FormerClasses::default();
        let theirs = || service("web").load_balancer().with_class("other/lb").with_finalizer(FINALIZER);
        let plain = || service("web").with_finalizer(FINALIZER);
        let turn = |old: Service, new: Service| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
        let of = |service: &Service| classes.of(service);
        classes.see(&Change::Added(Arc::new(plain())));
        assert_eq!(of(&plain()), None, "nobody saw its type change");
        classes.see(&turn(theirs(), plain()));
        classes.see(&turn(plain(), plain().with_annotation("a", "b")));
        assert_eq!(of(&plain()), Some(Some("other/lb".to_owned())));
        assert_eq!(of(&plain().uid("another")), None);
        classes.see(&turn(plain(), service("web")));
        assert_eq!(of(&plain()), None, "cleaned up");
        classes.see(&turn(theirs(), plain()));
        classes.see(&Change::Deleted(Arc::new(plain())));
        assert!(classes.0.lock().is_empty());
    }
}
