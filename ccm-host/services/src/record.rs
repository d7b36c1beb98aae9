//! What outlives the process, where a provider cannot keep it: who has a Service's balancer, and what is applied to it.
//!
//! In: rows. Out: a condition of the Service's status, which the role `edit` cannot write; after a restart, the
//! row that it describes. The condition holds the Service's part of the digest; that of the backends is the same for all
//! balancers of a provider, so [`super::nodes`] keeps it once. A list of a provider that keeps digests itself overrules
//! both. A condition that was edited, cut, or copied from another Service does not match its check, and says nothing.

use sha2::{Digest as _, Sha256};

use super::row::{Applied, Doubt, Known, Row, UNKNOWN_BACKENDS};
use ccm_cloud::{joined, service_part};
use ccm_kube::{patch::WantedCondition, service::Service};

/// The condition's type.
pub(super) const CONDITION: &str = "cloudprovider.ccm/LoadBalancer";

/// The content of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) provider: String,
    /// The Service's part of the digest of what is applied; `None` if the provider keeps it, or nothing is applied.
    applied: Option<String>,
    /// Something else was asked for since.
    doubt: bool,
}

impl Record {
    /// Of a row; `None` if there is nothing to remember.
    pub(super) fn of_row(row: &Row, is_durable: bool) -> Option<Self> {
        let (applied, doubt) = match (&row.known, is_durable) {
            (Known::Applied(Applied { digest, doubt, .. }), false) => {
                (service_part(digest).map(str::to_owned), doubt.service)
            }
            (Known::Applied(_) | Known::Asked { .. }, _) => (None, false),
            (Known::Unsure | Known::Absent | Known::Removed, _) => return None,
        };
        Some(Self { provider: row.at.provider.to_string(), applied, doubt })
    }

    /// Of a Service, if its condition is genuine.
    pub(super) fn of(service: &Service) -> Option<Self> {
        let mut record = Self { provider: String::new(), applied: None, doubt: false };
        let mut check = "";
        for word in service.condition(CONDITION)?.message.split(' ') {
            match word.split_once('=')? {
                ("provider", name) => name.clone_into(&mut record.provider),
                ("applied", part) => record.applied = Some(part.to_owned()),
                ("doubt", "true") => record.doubt = true,
                ("check", text) => check = text,
                _ => return None,
            }
        }
        (check == record.check(&service.uid)).then_some(record)
    }

    /// What it says of the balancer. `set`: digest of the backends that all balancers of the provider had.
    pub(super) fn known(&self, set: Option<&str>) -> Known {
        let Some(part) = &self.applied else { return Known::Asked { made_as: None } };
        let digest = joined(part, set.unwrap_or(UNKNOWN_BACKENDS));
        let doubt = Doubt { service: self.doubt, backends: false };
        Known::Applied(Applied { digest, service: None, needs_ensure: false, doubt })
    }

    /// The text of the condition for the Service of this uid.
    pub(super) fn message(&self, uid: &str) -> String {
        format!("{} check={}", self.content(), self.check(uid))
    }

    /// The condition to write.
    pub(super) fn condition(message: &str) -> WantedCondition<'_> {
        WantedCondition { type_: CONDITION, status: "True", reason: "Recorded", message }
    }

    fn content(&self) -> String {
        let Self { provider, applied, doubt } = self;
        let applied = applied.as_ref().map(|part| format!(" applied={part}")).unwrap_or_default();
        format!("provider={provider}{applied}{}", if *doubt { " doubt=true" } else { "" })
    }

    fn check(&self, uid: &str) -> String {
        let hash = Sha256::digest(format!("{uid} {}", self.content()));
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::{Condition, fixtures::service};

    fn with(message: &str) -> Service {
        let mut service = service("web");
        let message = message.to_owned();
        service.conditions = vec![Condition { type_: CONDITION.to_owned(), message, ..Condition::default() }];
        service
    }

    #[test]
    fn only_a_genuine_record_is_believed() {
        let record = Record { provider: "edge".to_owned(), applied: Some("0a-1b".to_owned()), doubt: true };
        let message = record.message("web-uid");
        assert_eq!(Record::of(&with(&message)), Some(record.clone()));
        let rows = [
            ("copied from another Service", record.message("other-uid")),
            ("edited", message.replace("edge", "aws")),
            ("edited", message.replace("1b", "1c")),
            ("its doubt removed", message.replace(" doubt=true", "")),
            ("cut", message[..message.len() - 1].to_owned()),
            ("cut", message.split(' ').next().unwrap().to_owned()),
            ("empty", String::new()),
            ("of somebody else", "all is well".to_owned()),
        ];
        for (how, message) in rows {
            assert_eq!(Record::of(&with(&message)), None, "{how}: {message}");
        }
        assert_eq!(Record::of(&service("web")), None);
    }
}
