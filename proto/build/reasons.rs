//! What goes with each reason, as Rust: read from the options of `ErrorReason`. A value without them ends the build.

use std::{error::Error, fmt::Write as _};

use prost_reflect::{DescriptorPool, DynamicMessage, EnumValueDescriptor, Value};

const ENUM: &str = "ccm.cloudprovider.v1alpha1.ErrorReason";
const OPTION: &str = "ccm.cloudprovider.v1alpha1.reason";
const VALUE_PREFIX: &str = "ERROR_REASON_";
const CLASS_PREFIX: &str = "RETRY_CLASS_";

/// The methods of `ErrorReason` that tell them.
pub(crate) fn traits(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let reasons = pool.get_enum_by_name(ENUM).ok_or("the enum of reasons is gone")?;
    let option = pool.get_extension_by_name(OPTION).ok_or("the option of reasons is gone")?;
    let [mut codes, mut retries, mut frozen] = [String::new(), String::new(), String::new()];
    for value in reasons.values() {
        let options = value.options();
        let told = options.get_extension(&option);
        let told = told.as_message().filter(|_| options.has_extension(&option));
        let told = told.ok_or_else(|| format!("{} has no option ({OPTION})", value.name()))?;
        let reason = camel(value.name().strip_prefix(VALUE_PREFIX).ok_or("a reason has another prefix")?);
        writeln!(codes, "Self::{reason} => &[{}],", codes_of(&value, told)?)?;
        writeln!(retries, "Self::{reason} => RetryClass::{},", retry_of(&value, told)?)?;
        let freezes = told.get_field_by_name("freezes").and_then(|field| field.as_bool()).unwrap_or_default();
        writeln!(frozen, "Self::{reason} => {freezes},")?;
    }
    Ok(format!(
        "impl ErrorReason {{
            /// The gRPC codes with which a call may end for this reason; the first is what an SDK sends.
            #[must_use]
            pub fn codes(self) -> &'static [Code] {{ match self {{ {codes} }} }}
            /// How the host tries again by itself.
            #[must_use]
            pub fn retry(self) -> RetryClass {{ match self {{ {retries} }} }}
            /// Whether destructive work is frozen while it lasts.
            #[must_use]
            pub fn freezes(self) -> bool {{ match self {{ {frozen} }} }}
        }}"
    ))
}

fn codes_of(value: &EnumValueDescriptor, told: &DynamicMessage) -> Result<String, Box<dyn Error>> {
    let listed = told.get_field_by_name("codes");
    let names = listed.as_deref().and_then(Value::as_list).unwrap_or_default();
    if names.is_empty() {
        return Err(format!("{} names no code", value.name()).into());
    }
    let codes: Vec<_> =
        names.iter().filter_map(Value::as_str).map(|name| format!("Code::{}", camel(name))).collect();
    Ok(codes.join(", "))
}

fn retry_of(value: &EnumValueDescriptor, told: &DynamicMessage) -> Result<String, Box<dyn Error>> {
    let number = told.get_field_by_name("retry").and_then(|field| field.as_enum_number()).unwrap_or_default();
    let pool = value.parent_enum().parent_pool();
    let classes =
        pool.get_enum_by_name("ccm.cloudprovider.v1alpha1.RetryClass").ok_or("the classes are gone")?;
    match classes.get_value(number) {
        Some(class) if number != 0 => Ok(camel(class.name().trim_start_matches(CLASS_PREFIX))),
        _ => Err(format!("{} has no retry class", value.name()).into()),
    }
}

/// `INVALID_ARGUMENT` as `InvalidArgument`.
pub(crate) fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_ascii_lowercase()
    };
    name.split('_').map(word).collect()
}
