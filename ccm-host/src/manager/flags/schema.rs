//! `docs/config.schema.json`: the schema of a `--config` file, for editors and for checks before a roll-out.

use serde_json::{Value, json};

use super::file::COMMAND_LINE_ONLY;
use super::table::{FlagDoc, table};

/// The schema, generated from the flags.
#[must_use]
pub fn schema() -> Value {
    let properties: serde_json::Map<String, Value> = table()
        .into_iter()
        .filter(|flag| !COMMAND_LINE_ONLY.contains(&flag.name.as_str()))
        .map(|flag| (flag.name.clone(), property(&flag)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "File for --config of ccm-host",
        "description": "The names of the flags; a flag on the command line wins.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(flag: &FlagDoc) -> Value {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let map = json!({"type": "object", "additionalProperties": {"type": ["string", "boolean"]}});
    let mut property = match flag.kind.as_str() {
        "BOOL" => json!({"type": "boolean"}),
        "INT" => json!({"type": "integer"}),
        "NUMBER" => json!({"type": "number"}),
        "PORT" => json!({"type": ["integer", "string"]}),
        "LIST" | "UIDS" => json!({"anyOf": [{"type": "string"}, list, map]}),
        _ if flag.repeatable => json!({"anyOf": [{"type": "string"}, list, map]}),
        _ => json!({"type": "string"}),
    };
    property["description"] = json!(flag.help);
    if !flag.default.is_empty() {
        property["default"] = json!(flag.default);
    }
    property
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.schema.json");
        let text = format!("{:#}\n", schema());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == text,
            "docs/config.schema.json is old: run UPDATE_DOCS=1 cargo test -p ccm-host schema"
        );
    }
}
