//! Tables for people: columns as wide as they must be, two blanks between.

use std::fmt;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    pub(super) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    /// One more row.
    pub(super) fn row<const N: usize>(mut self, cells: [String; N]) -> Self {
        self.rows.push(cells.into());
        self
    }

    /// One more row for each.
    pub(super) fn rows<T, const N: usize>(
        self,
        items: impl IntoIterator<Item = T>,
        cells: impl Fn(T) -> [String; N],
    ) -> Self {
        items.into_iter().fold(self, |table, item| table.row(cells(item)))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells: Vec<_> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}", width = *width))
                .collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A text, or a dash for nothing.
pub(super) fn or_dash(text: impl fmt::Display) -> String {
    let text = text.to_string();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A value, or a dash for none.
pub(super) fn maybe<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The JSON name of a plain value.
pub(super) fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let table = Table::new(["NAME", "ZONE"]).rows(["a", "longer"], |name| [name.to_owned(), or_dash("")]);
        assert_eq!(table.to_string(), "NAME    ZONE\na       -\nlonger  -\n");
    }
}
