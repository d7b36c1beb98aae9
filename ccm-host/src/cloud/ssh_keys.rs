//! The call that makes an SSH key valid on all instances.

use cloudprovider_proto::v1alpha1 as pb;

use super::{
    CloudError, InProgress,
    check::{self, Findings},
    link::Link,
    method,
};

pub(super) async fn add(link: &Link, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError> {
    let method = &method::ADD_SSH_KEY;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let message = pb::AddSshKeyToAllInstancesRequest {
        cluster: Some(link.config.cluster.message()),
        fencing: Some(link.fencing()),
        user: user.to_owned(),
        public_key: public_key.to_owned(),
    };
    let mut client = session.instances();
    let response = link
        .call(&session, method, None, message, async |request| {
            client.add_ssh_key_to_all_instances(request).await
        })
        .await?;
    let mut findings = Findings::default();
    let in_progress = response.in_progress.map(|given| check::in_progress(given, &mut findings));
    link.metrics.findings(&findings);
    Ok(in_progress)
}
