//! All providers of this host, and which objects each owns.
//!
//! In: the providers of the command line, and what each reported. Out: the owner of a node or of a Service. What to do
//! with an object that has no owner is decided in [`crate::controllers`].

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{Provider, ProviderInfo, ProviderStatus};
use crate::kube::Node;

/// The providers, in the order of the command line. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Providers(Arc<[Arc<dyn Provider>]>);

/// The owner of a node.
#[derive(Debug, Clone)]
pub enum NodeOwner {
    Provider(Arc<dyn Provider>),
    /// The node has no provider ID and several providers are possible: the one that knows its instance owns it.
    Candidates(Vec<Arc<dyn Provider>>),
    /// Some provider has not completed its first handshake; ask again later.
    Undecided,
    /// No provider's prefix matches the provider ID: the node is left alone.
    Nobody,
}

impl NodeOwner {
    /// The owner, if it is certain.
    #[must_use]
    pub fn provider(&self) -> Option<&Arc<dyn Provider>> {
        match self {
            Self::Provider(provider) => Some(provider),
            Self::Candidates(_) | Self::Undecided | Self::Nobody => None,
        }
    }
}

/// The owner of a Service of type LoadBalancer.
#[derive(Debug, Clone)]
pub enum ServiceOwner {
    Provider(Arc<dyn Provider>),
    /// A provider earlier in the order has not completed its first handshake; ask again later.
    Undecided,
    /// No provider of this host owns its class.
    Nobody,
}

impl ServiceOwner {
    /// Whether this provider is certainly the owner.
    #[must_use]
    pub fn is(&self, provider: &dyn Provider) -> bool {
        matches!(self, Self::Provider(owner) if owner.name() == provider.name())
    }
}

/// A class that several providers claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContestedClass {
    /// `None` means Services without a class.
    pub class: Option<String>,
    /// The first on the command line, which gets the Services.
    pub owner: String,
    pub others: Vec<String>,
}

impl Providers {
    /// The registry of these providers.
    #[must_use]
    pub fn new(providers: Vec<Arc<dyn Provider>>) -> Self {
        Self(providers.into())
    }

    #[must_use]
    pub fn all(&self) -> &[Arc<dyn Provider>] {
        &self.0
    }

    /// The provider with this name on the command line.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.0.iter().find(|provider| provider.name() == name)
    }

    /// The owner of a node: the longest matching prefix of its provider ID or, without an ID, a provider with
    /// instances.
    #[must_use]
    pub fn for_node(&self, node: &Node) -> NodeOwner {
        let mut known = Vec::with_capacity(self.0.len());
        let mut all_known = true;
        for provider in self.0.iter() {
            match provider.info() {
                Some(info) if info.instances => known.push((provider, info)),
                Some(_) => {}
                None => all_known = false,
            }
        }
        let undecided = |or: NodeOwner| if all_known { or } else { NodeOwner::Undecided };
        match node.provider_id.as_deref() {
            Some(id) => match by_prefix(&known, id) {
                Some(provider) => NodeOwner::Provider(Arc::clone(provider)),
                None => undecided(NodeOwner::Nobody),
            },
            None => undecided(match known.as_slice() {
                [] => NodeOwner::Nobody,
                [(only, _)] => NodeOwner::Provider(Arc::clone(only)),
                several => {
                    NodeOwner::Candidates(several.iter().map(|(provider, _)| Arc::clone(provider)).collect())
                }
            }),
        }
    }

    /// The owner of Services of this `spec.loadBalancerClass`: the first on the command line that claims it. A provider
    /// before its first handshake may claim it, so no later one is certain.
    #[must_use]
    pub fn for_service(&self, class: Option<&str>) -> ServiceOwner {
        for provider in self.0.iter() {
            match provider.info() {
                None => return ServiceOwner::Undecided,
                Some(info) if info.looks_after(class) => return ServiceOwner::Provider(Arc::clone(provider)),
                Some(_) => {}
            }
        }
        ServiceOwner::Nobody
    }

    /// The classes that both this provider and another claim, and who gets them.
    #[must_use]
    pub fn contested_classes(&self, provider: &dyn Provider) -> Vec<ContestedClass> {
        let Some(info) = provider.info() else { return Vec::new() };
        let classes = info.load_balancer_classes.iter().map(|class| Some(class.as_str())).chain([None]);
        let mut contested = Vec::new();
        for class in classes.filter(|class| info.looks_after(*class)) {
            let claims = self.0.iter().filter(|one| one.info().is_some_and(|info| info.looks_after(class)));
            let names: Vec<_> = claims.map(|one| one.name().to_owned()).collect();
            if let [first, others @ ..] = names.as_slice()
                && !others.is_empty()
            {
                let class = class.map(str::to_owned);
                contested.push(ContestedClass { class, owner: first.clone(), others: others.to_vec() });
            }
        }
        contested
    }

    /// For `/readyz`: the first provider that cannot be called, and why. A frozen provider can be called.
    #[must_use]
    pub fn reason_not_ready(&self) -> Option<String> {
        self.0.iter().find_map(|provider| match &*provider.status().borrow() {
            ProviderStatus::Disconnected(why) => Some(format!("provider {:?}: {why}", provider.name())),
            ProviderStatus::Frozen(_) | ProviderStatus::Serving => None,
        })
    }
}

/// The longest prefix wins; on a tie, the first on the command line.
fn by_prefix<'a>(
    known: &[(&'a Arc<dyn Provider>, Arc<ProviderInfo>)],
    id: &str,
) -> Option<&'a Arc<dyn Provider>> {
    let mut best: Option<(usize, &'a Arc<dyn Provider>)> = None;
    for (provider, info) in known {
        let longest = info
            .provider_id_prefixes
            .iter()
            .filter(|prefix| !prefix.is_empty() && id.starts_with(prefix.as_str()))
            .map(String::len)
            .max();
        if let Some(length) = longest
            && best.is_none_or(|(other, _)| length > other)
        {
            best = Some((length, provider));
        }
    }
    best.map(|(_, provider)| provider)
}
