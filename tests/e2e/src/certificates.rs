//! Requests for serving certificates, by kubelets and by impostors.

use anyhow::{Context as _, Result};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{
        CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
    },
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use test_cluster::{Cluster, wait};

/// The permissions of the approving controller, which `deploy/rbac.yaml` omits.
pub const RIGHTS: &str = include_str!("../../../deploy/kubelet-serving-csr.yaml");

/// Everybody may create requests, as each kubelet may in a real cluster.
const MAY_ASK: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-ask-for-certificates}
rules: [{apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-ask-for-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-ask-for-certificates}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]
";

/// A request before it is created.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The user that creates it.
    pub user: String,
    /// The groups of that user, besides `system:authenticated`.
    pub groups: Vec<&'static str>,
    /// The requested signer.
    pub signer: &'static str,
    /// The requested usages.
    pub usages: Vec<&'static str>,
    /// The certificate signing request.
    pub pem: String,
}

impl Ask {
    /// A request as the kubelet of this node creates it for these names.
    pub fn of(node: &str, names: &[&str]) -> Result<Self> {
        Self::with(node, names, |_| {})
    }

    /// The same request with a changed certificate signing request.
    pub fn with(node: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Result<Self> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = subject("system:nodes", &format!("system:node:{node}"));
        change(&mut params);
        let pem = params.serialize_request(&KeyPair::generate()?)?.pem()?;
        Ok(Self {
            user: format!("system:node:{node}"),
            groups: vec!["system:nodes"],
            signer: "kubernetes.io/kubelet-serving",
            usages: vec!["digital signature", "server auth"],
            pem,
        })
    }

    /// Creates the request, as that user.
    pub async fn make(&self, cluster: &Cluster, name: &str) -> Result<()> {
        let client = cluster.control_plane.client_for(&self.user, &self.groups)?;
        let request = CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.pem.clone().into_bytes()),
                signer_name: self.signer.to_owned(),
                usages: Some(self.usages.iter().map(|usage| (*usage).to_owned()).collect()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let made = Api::all(client).create(&PostParams::default(), &request).await;
        made.with_context(|| format!("{} cannot ask for {name}", self.user))?;
        Ok(())
    }
}

/// A subject with one organization.
pub fn subject(organization: &str, common_name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, organization);
    subject.push(DnType::CommonName, common_name);
    subject
}

/// Allows the host to approve, and everybody to create requests.
pub async fn grant(cluster: &Cluster) -> Result<()> {
    cluster.control_plane.apply_yaml(RIGHTS).await?;
    may_ask(cluster).await
}

/// Allows everybody to create requests.
pub async fn may_ask(cluster: &Cluster) -> Result<()> {
    cluster.control_plane.apply_yaml(MAY_ASK).await.map(drop)
}

/// The decision about a request, if there is one.
pub async fn decision(cluster: &Cluster, name: &str) -> Result<Option<CertificateSigningRequestCondition>> {
    let request = Api::<CertificateSigningRequest>::all(cluster.client.clone()).get(name).await?;
    Ok(request.status.and_then(|status| status.conditions?.into_iter().next()))
}

/// Waits for the wanted decision, `Approved` or `Denied`, and returns its reason.
pub async fn decided(cluster: &Cluster, name: &str, wanted: &str) -> Result<String> {
    let found = wait::until(&format!("{name} {wanted}"), async || decision(cluster, name).await)
        .await
        .with_context(|| format!("{:?}", cluster.parts()))?;
    anyhow::ensure!(found.type_ == wanted, "{name} is {found:?}");
    Ok(found.reason.unwrap_or_default())
}
