//! All providers of this host, and which objects each owns.
//!
//! In: the providers of the command line, how it divides objects among them, and what each reported. Out: the owner of
//! a node or of a Service, and the nodes that a provider's balancers may have. What to do with an object that has no
//! owner is decided by the controllers.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{Provider, ProviderInfo};
use ccm_base::text::{NAME, cut};
use ccm_kube::{Cache, Keep, Node, Service, keep::KeySet, selector::LabelSelector};

/// Names the provider of a Service's balancer; among those that claim the Service's class, if it has one.
pub const PROVIDER_ANNOTATION: &str = "cloudprovider.ccm/load-balancer-provider";

/// The providers, in the order of the command line. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Providers {
    all: Arc<[Arc<dyn Provider>]>,
    division: Arc<Division>,
}

/// How the command line divides objects among several providers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Division {
    /// By provider: its nodes, for as long as these have no provider ID.
    pub nodes: BTreeMap<String, LabelSelector>,
    /// The provider of Services with neither class nor annotation.
    pub services: Option<String>,
    /// By prefix of a provider ID: the provider of such nodes, whatever others claim.
    pub prefixes: BTreeMap<String, String>,
}

/// The owner of a node.
#[derive(Debug, Clone)]
pub enum NodeOwner {
    Provider(Arc<dyn Provider>),
    /// The node has no provider ID and several providers are possible: the one that knows its instance owns it.
    Candidates(Vec<Arc<dyn Provider>>),
    /// Some provider has not completed its first handshake and may claim it, or several claim its provider ID
    /// ([`Providers::contest`]); ask again later.
    Undecided,
    /// No provider's prefix matches the provider ID: the node is left alone.
    Nobody,
}

impl NodeOwner {
    /// Whether the node is this provider's, as far as is known.
    pub fn may_be(&self, provider: &dyn Provider) -> bool {
        match self {
            Self::Provider(owner) => owner.name() == provider.name(),
            Self::Candidates(all) => all.iter().any(|one| one.name() == provider.name()),
            Self::Undecided => true,
            Self::Nobody => false,
        }
    }

    /// Those that may have its instance, as far as they have introduced themselves.
    pub fn possible(self) -> Vec<Arc<dyn Provider>> {
        match self {
            Self::Provider(owner) => vec![owner],
            Self::Candidates(all) => all,
            Self::Undecided | Self::Nobody => Vec::new(),
        }
    }

    /// The owner, if it is certain.
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
    /// Its annotation names no provider of this host that has balancers for it. Holds the problem and the remedy.
    Misnamed(String),
    /// No provider of this host owns its class.
    Nobody,
}

impl ServiceOwner {
    /// Whether this provider is certainly the owner.
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

/// Provider IDs that several providers claim: the nodes that have them belong to none of these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContestedPrefix {
    /// The longest of their prefixes.
    pub prefix: String,
    /// In the order of the command line.
    pub providers: Vec<String>,
}

impl fmt::Display for ContestedPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, providers } = self;
        write!(
            out,
            "providers {} all claim provider IDs that begin with {prefix:?}: name one of them in \
             --provider-id-prefix=NAME={prefix}",
            providers.join(" and ")
        )
    }
}

impl Providers {
    /// The registry of these providers.
    pub fn new(providers: Vec<Arc<dyn Provider>>) -> Self {
        Self { all: providers.into(), division: Arc::default() }
    }

    /// Divides objects among them.
    #[must_use]
    pub fn divided(self, division: Division) -> Self {
        Self { division: Arc::new(division), ..self }
    }

    pub fn all(&self) -> &[Arc<dyn Provider>] {
        &self.all
    }

    /// The provider with this name on the command line.
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.all.iter().find(|provider| provider.name() == name)
    }

    /// What the Node cache must keep to find the owner of a node.
    pub fn keep_of_nodes(&self) -> Keep {
        let keys = self.division.nodes.values().flat_map(LabelSelector::keys);
        Keep { labels: KeySet::keys(keys), annotations: KeySet::default() }
    }

    /// What the Service cache must keep to find the owner of a Service.
    pub fn keep_of_services() -> Keep {
        Keep { labels: KeySet::default(), annotations: KeySet::keys([PROVIDER_ANNOTATION]) }
    }

    /// The owner of a node: the provider that the command line names for its provider ID, else the only one that claims
    /// it. Without an ID, the provider whose selector matches, else a provider with instances and without a selector.
    pub fn for_node(&self, node: &Node) -> NodeOwner {
        node.provider_id.as_deref().map_or_else(|| self.without_id(node), |id| self.for_id(id))
    }

    /// The owner of a machine, by its provider ID.
    pub fn for_id(&self, id: &str) -> NodeOwner {
        if let Some(name) = self.pinned(id) {
            return match self.by_name(name).map(|provider| (provider, provider.info())) {
                Some((provider, Some(info))) if info.instances => NodeOwner::Provider(Arc::clone(provider)),
                Some((_, None)) => NodeOwner::Undecided,
                _ => NodeOwner::Nobody,
            };
        }
        let mut claimants = self.claimants(id);
        match (claimants.next(), claimants.next()) {
            // Whoever has not introduced itself yet may claim it, too.
            _ if self.all.iter().any(|provider| provider.info().is_none()) => NodeOwner::Undecided,
            (Some(only), None) => NodeOwner::Provider(Arc::clone(only)),
            (Some(_), Some(_)) => NodeOwner::Undecided,
            (None, _) => NodeOwner::Nobody,
        }
    }

    /// The provider that the command line names for this provider ID, by its longest prefix.
    fn pinned(&self, id: &str) -> Option<&str> {
        let matching = self.division.prefixes.iter().filter(|(prefix, _)| id.starts_with(prefix.as_str()));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, name)| name.as_str())
    }

    /// The providers that claim this provider ID.
    fn claimants(&self, id: &str) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.all.iter().filter(move |provider| provider.info().is_some_and(|info| claimed(&info, id) > 0))
    }

    /// Why the node's provider ID leaves its owner open, if several providers claim it.
    pub fn contest(&self, node: &Node) -> Option<ContestedPrefix> {
        let id = node.provider_id.as_deref().filter(|id| self.pinned(id).is_none())?;
        self.contested(id)
    }

    fn contested(&self, id: &str) -> Option<ContestedPrefix> {
        let longest = self.claimants(id).filter_map(|one| Some(claimed(&*one.info()?, id))).max()?;
        let providers: Vec<_> = self.claimants(id).map(|one| one.name().to_owned()).collect();
        let prefix = id.get(..longest)?.to_owned();
        (providers.len() > 1).then_some(ContestedPrefix { prefix, providers })
    }

    /// The prefixes that several providers claim and the command line leaves open.
    pub fn contested_prefixes(&self) -> Vec<ContestedPrefix> {
        let infos: Vec<_> = self.all.iter().filter_map(|provider| provider.info()).collect();
        let prefixes: BTreeSet<_> = infos.iter().flat_map(|info| &info.provider_id_prefixes).collect();
        let open = prefixes.into_iter().filter(|prefix| self.pinned(prefix).is_none());
        open.filter_map(|prefix| self.contested(prefix)).collect()
    }

    fn without_id(&self, node: &Node) -> NodeOwner {
        let selectors = &self.division.nodes;
        let selects = |provider: &&Arc<dyn Provider>| {
            let selector = selectors.get(provider.name());
            selector.is_some_and(|selector| selector.matches(|key| node.labels.get(key)))
        };
        let mut possible: Vec<_> = self.all.iter().filter(selects).collect();
        if possible.is_empty() {
            possible = self.all.iter().filter(|one| !selectors.contains_key(one.name())).collect();
        }
        if possible.iter().any(|provider| provider.info().is_none()) {
            return NodeOwner::Undecided;
        }
        possible.retain(|provider| self.may_have_nodes(&***provider));
        match possible.as_slice() {
            [] => NodeOwner::Nobody,
            [only] => NodeOwner::Provider(Arc::clone(only)),
            several => NodeOwner::Candidates(several.iter().copied().cloned().collect()),
        }
    }

    /// Whether nodes may belong to this provider: it has instances, and the command line does not give all provider IDs that
    /// it claims to others.
    fn may_have_nodes(&self, provider: &dyn Provider) -> bool {
        let is_free = |prefix: &String| self.pinned(prefix).is_none_or(|name| name == provider.name());
        provider.info().is_some_and(|info| info.instances && info.provider_id_prefixes.iter().any(is_free))
    }

    /// Whether the balancers of this provider may send traffic to the node. A single provider gets all nodes, as
    /// upstream's does, and so does one without nodes of its own; of several, each gets its own. A provider that is still to
    /// introduce itself, or that claims what another one does, takes none out of a balancer that serves.
    pub fn may_back(&self, provider: &dyn Provider, node: &Node) -> bool {
        let is_its = |id: &str| {
            self.pinned(id).is_none() && self.claimants(id).any(|one| one.name() == provider.name())
        };
        self.all.len() == 1
            || provider.info().is_some() && !self.may_have_nodes(provider)
            || match self.for_node(node) {
                NodeOwner::Provider(owner) => owner.name() == provider.name(),
                NodeOwner::Undecided => node.provider_id.as_deref().is_some_and(is_its),
                NodeOwner::Candidates(_) | NodeOwner::Nobody => false,
            }
    }

    /// The owner of a Service of type LoadBalancer: the provider that its annotation names, else the provider of
    /// Services without a class, else the first on the command line that claims its class. A provider before its first
    /// handshake may claim it, so no later one is certain.
    pub fn for_service(&self, service: &Service) -> ServiceOwner {
        let class = service.spec.load_balancer_class.as_deref();
        match service.annotations.get(PROVIDER_ANNOTATION) {
            Some(name) => self.named(name, class),
            None => self.for_class(class),
        }
    }

    fn named(&self, name: &str, class: Option<&str>) -> ServiceOwner {
        let claims =
            |info: &ProviderInfo| info.load_balancers && (class.is_none() || info.looks_after(class));
        let problem = match self.by_name(name).map(|provider| (provider, provider.info())) {
            Some((_, None)) => return ServiceOwner::Undecided,
            Some((provider, Some(info))) if claims(&info) => {
                return ServiceOwner::Provider(Arc::clone(provider));
            }
            // A class that no provider here claims is another implementation's, whatever the annotation says.
            _ if class.is_some() && matches!(self.for_class(class), ServiceOwner::Nobody) => {
                return ServiceOwner::Nobody;
            }
            Some((_, Some(info))) if info.load_balancers => {
                format!("does not serve load balancer class {:?}", class.unwrap_or_default())
            }
            Some(_) => "makes no load balancers".to_owned(),
            None => "is not a provider of this host".to_owned(),
        };
        let balancing = |provider: &&Arc<dyn Provider>| provider.info().is_some_and(|info| claims(&info));
        let names: Vec<_> = self.all.iter().filter(balancing).map(|provider| provider.name()).collect();
        ServiceOwner::Misnamed(format!(
            "annotation {PROVIDER_ANNOTATION}: {:?} {problem}: remove it, or name one of: {}",
            cut(name, NAME),
            names.join(", ")
        ))
    }

    /// The owner of Services of this class without the annotation.
    pub fn for_class(&self, class: Option<&str>) -> ServiceOwner {
        let only = self.division.services.as_deref().filter(|_| class.is_none());
        for provider in self.all.iter().filter(|one| only.is_none_or(|name| one.name() == name)) {
            match provider.info() {
                None => return ServiceOwner::Undecided,
                Some(info) if info.looks_after(class) || only.is_some() && info.load_balancers => {
                    return ServiceOwner::Provider(Arc::clone(provider));
                }
                Some(_) => {}
            }
        }
        ServiceOwner::Nobody
    }

    /// The classes that both this provider and another claim, and who gets them.
    pub fn contested_classes(&self, provider: &dyn Provider) -> Vec<ContestedClass> {
        let Some(info) = provider.info() else { return Vec::new() };
        let classes = info.load_balancer_classes.iter().map(|class| Some(class.as_str())).chain([None]);
        let mut contested = Vec::new();
        let divided = |class: Option<&str>| class.is_none() && self.division.services.is_some();
        for class in classes.filter(|class| info.looks_after(*class) && !divided(*class)) {
            let claims = self.all.iter().filter(|one| one.info().is_some_and(|info| info.looks_after(class)));
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

    /// Tells the caches which fields the providers want, as far as they have introduced themselves; a cache never goes back to
    /// keeping less.
    ///
    /// A digest over less than a provider wants would tell it, for example, that an annotation was removed: whoever computes
    /// one waits for [`Cache::kept`].
    pub fn hand_on(&self, nodes: &Cache<Node>, services: &Cache<Service>) {
        for (provider, info) in self.all.iter().filter_map(|one| Some((one, one.info()?))) {
            nodes.set_keep(provider.name(), &info.keep_of_nodes);
            services.set_keep(provider.name(), &info.keep_of_services);
        }
    }
}

/// The length of the longest of the provider's prefixes that the provider ID begins with; 0 without one.
fn claimed(info: &ProviderInfo, id: &str) -> usize {
    let prefixes =
        info.provider_id_prefixes.iter().filter(|one| info.instances && id.starts_with(one.as_str()));
    prefixes.map(String::len).max().unwrap_or(0)
}
