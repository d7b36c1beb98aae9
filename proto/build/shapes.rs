//! What each request must contain, as Rust: read from the option `shape` of its fields.

use std::{collections::BTreeMap, error::Error, fmt::Write as _};

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};

use super::options::{PACKAGE, flag, number, option, text, texts};

/// `Shaped` for each message that a request consists of, and `RequestMessage` for each request.
pub(crate) fn shapes(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let mut shaped = BTreeMap::new();
    let mut code = String::new();
    let services = pool.services().filter(|service| service.package_name() == PACKAGE);
    for method in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let request = method.input();
        collect(&request, &mut shaped)?;
        write!(code, "{}", as_request(&request))?;
    }
    for (name, checks) in shaped {
        let at = if checks.is_empty() { "_" } else { "at" };
        write!(
            code,
            "impl Shaped for v1alpha1::{name} {{
                fn check(&self, {at}: &Path<'_>) -> Result<(), Misshapen> {{ {checks} Ok(()) }}
            }}"
        )?;
    }
    Ok(code)
}

/// The checks of a message and of all in it, by its name. Returns whether there is anything to check in it.
fn collect(
    message: &MessageDescriptor,
    shaped: &mut BTreeMap<String, String>,
) -> Result<bool, Box<dyn Error>> {
    if let Some(known) = shaped.get(message.name()) {
        return Ok(!known.is_empty());
    }
    // Of a message within itself, the checks end here.
    shaped.insert(message.name().to_owned(), String::new());
    let mut checks = String::new();
    for field in message.fields() {
        checks += &field_checks(&field, shaped)?;
    }
    let is_checked = !checks.is_empty();
    shaped.insert(message.name().to_owned(), checks);
    Ok(is_checked)
}

fn field_checks(
    field: &FieldDescriptor,
    shaped: &mut BTreeMap<String, String>,
) -> Result<String, Box<dyn Error>> {
    let shape = shape(field)?;
    let (name, member) = (field.name(), member(field.name()));
    let required = flag(&shape, "required");
    let inside = match field.kind() {
        Kind::Message(inside)
            if inside.package_name() == PACKAGE && !field.is_map() && !flag(&shape, "unchecked") =>
        {
            collect(&inside, shaped)?
        }
        _ => false,
    };
    let mut code = String::new();
    if field.is_list() {
        let limit = text(&shape, "limit");
        let limit = if limit.is_empty() { "u32::MAX".to_owned() } else { format!("at.limits.{limit}") };
        let empty_with = text(&shape, "empty_with");
        if !empty_with.is_empty() {
            write!(
                code,
                "empty_with(at, \"{name}\", self.{member}.len(), self.{empty_with}, \"{empty_with}\")?;"
            )?;
        }
        if required || limit != "u32::MAX" {
            write!(code, "list(at, \"{name}\", self.{member}.len(), {required}, {limit})?;")?;
        }
        if inside {
            write!(
                code,
                "for (entry, one) in self.{member}.iter().enumerate() {{ one.check(&at.entry(\"{name}\", entry))?; }}"
            )?;
        }
        for path in texts(&shape, "unique") {
            let value = value_at(&path);
            write!(code, "unique(at, \"{name}\", \"{path}\", self.{member}.iter().map(|one| {value}))?;")?;
        }
        return Ok(code);
    }
    match field.kind() {
        Kind::Message(_) => {
            if required {
                write!(code, "present(at, \"{name}\", self.{member}.is_some())?;")?;
            }
            if inside {
                write!(code, "if let Some(one) = &self.{member} {{ one.check(&at.field(\"{name}\"))?; }}")?;
            }
        }
        Kind::String => {
            let most = number(&shape, "max_bytes");
            let with = text(&shape, "required_with");
            let required = if with.is_empty() { required.to_string() } else { format!("self.{with}") };
            if most > 0 || required != "false" {
                write!(code, "text(at, \"{name}\", &self.{member}, {required}, {most})?;")?;
            }
        }
        _ if flag(&shape, "not_negative") => {
            write!(code, "not_negative(at, \"{name}\", self.{member})?;")?;
        }
        _ => {}
    }
    Ok(code)
}

/// What all requests share, as far as this one has it.
fn as_request(request: &MessageDescriptor) -> String {
    let has = |name: &str| request.get_field_by_name(name).is_some();
    let mut methods = String::new();
    if has("cluster") {
        methods += "fn cluster(&self) -> Option<&v1alpha1::ClusterRef> { self.cluster.as_ref() }";
    }
    if has("fencing") {
        methods += "fn fencing(&self) -> Option<&v1alpha1::Fencing> { self.fencing.as_ref() }";
    }
    if has("page_token") {
        methods += "fn page_size(&mut self) -> Option<&mut i32> { Some(&mut self.page_size) }";
    }
    if has("backends") {
        methods += "fn backends(&mut self) -> Option<&mut v1alpha1::BackendSet> { self.backends.as_mut() }";
    }
    let batch = request.fields().find(|field| field.is_list() && matches!(field.kind(), Kind::Message(_)));
    if let Some(batch) = batch {
        methods +=
            &format!("fn items(&self) -> Option<usize> {{ Some(self.{}.len()) }}", member(batch.name()));
    }
    format!("impl RequestMessage for v1alpha1::{} {{ {methods} }}", request.name())
}

fn shape(field: &FieldDescriptor) -> Result<DynamicMessage, Box<dyn Error>> {
    let shape = option(field.parent_pool(), "shape", &field.options())?;
    for neighbour in ["required_with", "empty_with"].map(|name| text(&shape, name)) {
        if !neighbour.is_empty() && field.parent_message().get_field_by_name(&neighbour).is_none() {
            return Err(
                format!("{} names {neighbour}, which is no field beside it", field.full_name()).into()
            );
        }
    }
    Ok(shape)
}

/// The expression for the text at a path below `one`.
fn value_at(path: &str) -> String {
    let Some((parts, last)) = path.rsplit_once('.') else { return format!("&*one.{}", member(path)) };
    let mut parts = parts.split('.').map(member);
    let first = format!("one.{}.as_ref()", parts.next().unwrap_or_default());
    let there = parts.fold(first, |before, part| format!("{before}.and_then(|one| one.{part}.as_ref())"));
    format!("{there}.map_or(\"\", |one| &*one.{})", member(last))
}

/// A field's name in Rust.
fn member(name: &str) -> String {
    if matches!(name, "ref" | "type") { format!("r#{name}") } else { name.to_owned() }
}
