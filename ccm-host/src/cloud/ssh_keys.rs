//! The call that makes an SSH key valid on all instances.

use cloudprovider_proto::v1alpha1 as pb;

use super::{CloudError, InProgress, check, link::Link};

pub(super) async fn add(link: &Link, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError> {
    let message = pb::AddSshKeyToAllInstancesRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        user: user.to_owned(),
        public_key: public_key.to_owned(),
    };
    let answer = link.ask(message).await?;
    Ok(link.metrics.checked(|findings| answer.in_progress.map(|given| check::in_progress(given, findings))))
}
