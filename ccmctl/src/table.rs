//! Columns of text for people.

use std::fmt::{self, Display};

/// Rows under a header, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row. Empty cells show as `-`.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |cell: String| if cell.is_empty() { "-".to_owned() } else { plain(&cell) };
        self.rows.push(cells.into_iter().map(cell).collect());
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line += &format!("{cell:width$}  ");
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text from elsewhere, so that it cannot steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_nothing_steers_the_terminal() {
        let mut table = Table::new(&["NAME", "WHY"]);
        table.row(["a".to_owned(), String::new()]);
        table.row(["longer".to_owned(), "\u{1b}[31mred\n".to_owned()]);
        assert_eq!(table.to_string(), "NAME    WHY\na       -\nlonger  \u{fffd}[31mred\u{fffd}\n");
    }
}
