//! The table of the chart's values: a row for each that has a comment in `values.yaml`.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

const FILE: &str = "values.yaml";
/// The maximum width of a cell.
const LONGEST: usize = 80;

/// The table in Markdown.
pub(crate) fn table(yaml: &str) -> Result<String> {
    let values: Value = serde_saphyr::from_str(yaml).context("values.yaml")?;
    let mut table = "| Value | Default | What it is |\n|---|---|---|\n".to_owned();
    let mut said: Vec<(String, String)> = Vec::new();
    let (mut path, mut comment): (Vec<(usize, &str)>, Option<&str>) = (Vec::new(), None);
    for line in yaml.lines() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix("# ") {
            comment = Some(text);
        } else if line.is_empty() {
            comment = None;
        } else if let Some((key, _)) = line.split_once(':').filter(|_| !line.starts_with('-')) {
            path.retain(|(above, _)| *above < depth);
            path.push((depth, key));
            if let Some(text) = comment.take() {
                said.push((path.iter().map(|(_, key)| *key).collect::<Vec<_>>().join("."), text.to_owned()));
            }
        }
    }
    for (name, text) in &said {
        let pointer = format!("/{}", name.replace('.', "/"));
        let default = values.pointer(&pointer).with_context(|| format!("no value {name}"))?;
        let default = Some(default.to_string()).filter(|text| text.len() <= LONGEST);
        let default = default.map_or(format!("see [{FILE}]({FILE})"), |text| format!("`{text}`"));
        table += &format!("| `{name}` | {default} | {text} |\n");
    }
    unsaid(&values, "", &said)?;
    Ok(table)
}

/// Each value has a row, or is below one, or above some.
fn unsaid(values: &Value, above: &str, said: &[(String, String)]) -> Result<()> {
    for (key, value) in values.as_object().into_iter().flatten() {
        let name = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        if said.iter().any(|(row, _)| *row == name) {
            continue;
        }
        ensure!(
            value.as_object().is_some_and(|below| !below.is_empty()),
            "{name} of values.yaml has no comment"
        );
        unsaid(value, &name, said)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_comment_is_named() {
        let table = table("# first\n\n# A.\na: 1\nb:\n  # C.\n  c: [x]\n").unwrap();
        assert!(table.ends_with("| `a` | `1` | A. |\n| `b.c` | `[\"x\"]` | C. |\n"), "{table}");
        let error = super::table("# A.\na: 1\nb:\n  c: 2\n").unwrap_err().to_string();
        assert!(error.contains("b.c"), "{error}");
    }
}
