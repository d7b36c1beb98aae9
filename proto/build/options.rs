//! Reads the options of our own, which say facts about fields, RPCs, capabilities and reasons.

use std::error::Error;

use prost_reflect::{DescriptorPool, DynamicMessage, Value};

pub(crate) const PACKAGE: &str = "ccm.cloudprovider.v1alpha1";

/// The message in the option `name`; empty if it is not set.
pub(crate) fn option(
    pool: &DescriptorPool,
    name: &str,
    options: &DynamicMessage,
) -> Result<DynamicMessage, Box<dyn Error>> {
    let option = pool
        .get_extension_by_name(&format!("{PACKAGE}.{name}"))
        .ok_or_else(|| format!("the option {name} is gone"))?;
    let told = options.get_extension(&option).as_message().cloned();
    told.ok_or_else(|| format!("the option {name} is no message").into())
}

pub(crate) fn flag(message: &DynamicMessage, field: &str) -> bool {
    message.get_field_by_name(field).and_then(|value| value.as_bool()).unwrap_or_default()
}

pub(crate) fn number(message: &DynamicMessage, field: &str) -> u32 {
    message.get_field_by_name(field).and_then(|value| value.as_u32()).unwrap_or_default()
}

pub(crate) fn text(message: &DynamicMessage, field: &str) -> String {
    message.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn texts(message: &DynamicMessage, field: &str) -> Vec<String> {
    let listed = message.get_field_by_name(field);
    let listed = listed.as_deref().and_then(Value::as_list).unwrap_or_default();
    listed.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
