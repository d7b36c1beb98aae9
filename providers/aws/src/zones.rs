//! The IDs of zones, which are the same in every account, where names are not.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::api::{Action, Deadline, Failure};
use crate::cloud::Cloud;

#[derive(Debug)]
pub(crate) struct Zones {
    cloud: Cloud,
    ids: Mutex<HashMap<String, String>>,
}

impl Zones {
    pub(crate) fn new(cloud: Cloud) -> Self {
        Self { cloud, ids: Mutex::default() }
    }

    /// The IDs of these zones, of those that AWS knows. One call if one of them is new here, else none.
    pub(crate) async fn ids<'a>(
        &self,
        zones: impl IntoIterator<Item = &'a str>,
        until: Deadline,
    ) -> Result<HashMap<String, String>, Failure> {
        let zones: HashSet<_> = zones.into_iter().collect();
        if !zones.iter().all(|zone| self.ids.lock().contains_key(*zone)) {
            self.refresh(until).await?;
        }
        Ok(self.ids.lock().clone())
    }

    pub(crate) async fn refresh(&self, until: Deadline) -> Result<(), Failure> {
        let asked = self.cloud.ec2.describe_availability_zones().send();
        let answer = self.cloud.calls.make(Action::DescribeAvailabilityZones, until, asked).await?;
        let known = answer
            .availability_zones()
            .iter()
            .filter_map(|zone| Some((zone.zone_name()?.to_owned(), zone.zone_id()?.to_owned())));
        self.ids.lock().extend(known);
        Ok(())
    }
}
