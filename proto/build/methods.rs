//! The RPCs of the contract, as Rust: read from the descriptors and the options of each RPC and each capability.

use std::{collections::HashMap, error::Error, fmt::Write as _};

use prost_reflect::{DescriptorPool, MethodDescriptor};

use super::{
    options::{PACKAGE, number, option, text},
    reasons::camel,
};

const CAPABILITY_PREFIX: &str = "CAPABILITY_";

/// A `Method` for each RPC, `Rpc` for each request, and the service of each capability.
pub(crate) fn methods(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let (by_rpc, mut code) = capabilities(pool)?;
    let mut all = String::new();
    let services = pool.services().filter(|service| service.package_name() == PACKAGE);
    for method in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let (name, service) = (method.name(), method.parent_service().name().to_owned());
        let traits = option(pool, "method", &method.options())?;
        let seconds = |field| match number(&traits, field) {
            0 => Err(format!("{name} has no {field}")),
            seconds => Ok(seconds),
        };
        let capability = match by_rpc.get(name) {
            Some(capability) => format!("Some(v1alpha1::Capability::{capability})"),
            None => "None".to_owned(),
        };
        let constant = constant(name);
        write!(
            code,
            "/// `{service}.{name}`.
            pub const {constant}: Method = Method {{
                name: \"{name}\",
                service: \"{service}\",
                path: \"/{PACKAGE}.{service}/{name}\",
                class: Class::{},
                deadline: Duration::from_secs({}),
                max_deadline: Duration::from_secs({}),
                capability: {capability},
            }};
            impl Rpc for v1alpha1::{} {{
                type Answer = v1alpha1::{};
                const METHOD: &'static Method = &{constant};
            }}",
            class(&method),
            seconds("deadline")?,
            seconds("max_deadline")?,
            method.input().name(),
            method.output().name(),
        )?;
        write!(all, "&{constant},")?;
    }
    write!(code, "/// All of them, in the order of the contract.\npub const ALL: &[&Method] = &[{all}];")?;
    Ok(code)
}

/// What answers from the provider's memory costs the cloud nothing, and a stream is no call that ends.
fn class(method: &MethodDescriptor) -> &'static str {
    if method.parent_service().name() == "CloudProvider" || method.is_server_streaming() {
        return "Local";
    }
    match method.method_descriptor_proto().options.as_ref().map(|options| options.idempotency_level()) {
        Some(prost_types::method_options::IdempotencyLevel::NoSideEffects) => "Read",
        _ => "Mutation",
    }
}

/// The capability of each RPC that needs one, and the services of all as a method of `Capability`.
fn capabilities(pool: &DescriptorPool) -> Result<(HashMap<String, String>, String), Box<dyn Error>> {
    let all =
        pool.get_enum_by_name("ccm.cloudprovider.v1alpha1.Capability").ok_or("the capabilities are gone")?;
    let (mut by_rpc, mut services) = (HashMap::new(), String::new());
    for value in all.values() {
        let name =
            camel(value.name().strip_prefix(CAPABILITY_PREFIX).ok_or("a capability has another prefix")?);
        let traits = option(pool, "capability", &value.options())?;
        let (service, rpc) = (text(&traits, "service"), text(&traits, "rpc"));
        if service.is_empty() && value.number() != 0 {
            return Err(format!("{} names no service", value.name()).into());
        }
        writeln!(services, "Self::{name} => \"{service}\",")?;
        if !rpc.is_empty() {
            by_rpc.insert(rpc, name);
        }
    }
    let code = format!(
        "impl v1alpha1::Capability {{
            /// The service that it belongs to, without the package.
            #[must_use]
            pub fn service(self) -> &'static str {{ match self {{ {services} }} }}
        }}"
    );
    Ok((by_rpc, code))
}

/// `GetInstances` as `GET_INSTANCES`.
fn constant(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}
