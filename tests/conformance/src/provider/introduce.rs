//! The handshake with whatever listens at the endpoint.

use std::{error::Error, time::Duration};

use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, GetInfoResponse, discovery_client::DiscoveryClient},
    service_names,
    v1alpha1::{GetCapabilitiesRequest, cloud_provider_client::CloudProviderClient},
};
use tonic::{Code, Request, Status};

use super::Provider;
use crate::target::{Endpoint, Wire, WireError};

/// The limit for `GetInfo` and `GetCapabilities`.
const DEADLINE: Duration = Duration::from_secs(10);
const OUR_PACKAGE: &str = "ccm.cloudprovider.v1alpha1.";

/// Why there is nothing to test.
#[derive(Debug, thiserror::Error)]
pub enum NoProvider {
    /// Nobody listens.
    #[error("nobody answers at {endpoint}: {problem}")]
    Nobody {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error.
        problem: String,
    },
    /// Something else listens.
    #[error("no provider at {endpoint}: {problem}; a provider serves {}", service_names::DISCOVERY)]
    SomethingElse {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error.
        problem: String,
    },
    /// It accepts the call and never answers.
    #[error("what listens at {endpoint} does not answer GetInfo: {problem}")]
    Hangs {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error.
        problem: String,
    },
    /// A provider with other versions of the contract.
    #[error(
        "provider {name} at {endpoint} speaks nothing that this suite knows; it serves {}, this suite tries {OUR_PACKAGE}*",
        services.join(", ")
    )]
    OtherVersion {
        /// The endpoint.
        endpoint: Endpoint,
        /// Its name.
        name: String,
        /// Its services.
        services: Vec<String>,
    },
}

/// A status with all its causes.
pub(crate) fn in_words(status: &Status) -> String {
    let mut words = if status.message().is_empty() {
        format!("{:?}", status.code())
    } else {
        format!("{:?}: {}", status.code(), status.message())
    };
    let mut source = status.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        source = error.source();
    }
    words
}

/// Why a call got no answer, if it got none.
pub(crate) fn no_answer(status: &Status) -> Option<&WireError> {
    let mut source: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = source {
        if let Some(wire) = error.downcast_ref() {
            return Some(wire);
        }
        source = error.source();
    }
    None
}

fn timely<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Asks for identity and capabilities.
///
/// # Errors
///
/// There is no provider that this suite could test. One that returns an error counts as a provider, and its cases fail.
pub async fn introduce(wire: &Wire) -> Result<Provider, NoProvider> {
    let host_services =
        [service_names::CLOUD_PROVIDER, service_names::INSTANCES, service_names::LOAD_BALANCERS];
    let hello = GetInfoRequest {
        host_name: "provider-conformance".to_owned(),
        host_version: env!("CARGO_PKG_VERSION").to_owned(),
        host_services: host_services.map(str::to_owned).to_vec(),
    };
    let info = match DiscoveryClient::new(wire.clone()).get_info(timely(hello)).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            let problem = format!("GetInfo answers {}", in_words(&status));
            return match nobody(wire.endpoint(), &status) {
                Some(error) => Err(error),
                None => Ok(Provider { problem: Some(problem), ..Provider::default() }),
            };
        }
    };
    known(wire.endpoint(), &info)?;
    let ask = timely(GetCapabilitiesRequest::default());
    match CloudProviderClient::new(wire.clone()).get_capabilities(ask).await {
        Ok(answer) => Ok(Provider { info, capabilities: answer.into_inner(), problem: None }),
        Err(status) => {
            let problem = Some(format!("GetCapabilities answers {}", in_words(&status)));
            Ok(Provider { info, problem, ..Provider::default() })
        }
    }
}

fn nobody(endpoint: &Endpoint, status: &Status) -> Option<NoProvider> {
    let (endpoint, problem) = (endpoint.clone(), in_words(status));
    match no_answer(status) {
        Some(WireError::Dial { .. }) => Some(NoProvider::Nobody { endpoint, problem }),
        Some(WireError::NoAnswer(_)) => Some(NoProvider::Hangs { endpoint, problem }),
        Some(WireError::NotHttp2 { .. } | WireError::Broken(_) | WireError::Reset(_)) => {
            Some(NoProvider::SomethingElse { endpoint, problem })
        }
        None if status.code() == Code::Unimplemented => Some(NoProvider::SomethingElse { endpoint, problem }),
        Some(WireError::Request(_)) | None => None,
    }
}

fn known(endpoint: &Endpoint, info: &GetInfoResponse) -> Result<(), NoProvider> {
    let ours = info.services.is_empty() || info.services.iter().any(|name| name.starts_with(OUR_PACKAGE));
    if ours {
        return Ok(());
    }
    Err(NoProvider::OtherVersion {
        endpoint: endpoint.clone(),
        name: info.name.clone(),
        services: info.services.clone(),
    })
}
