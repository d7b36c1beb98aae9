//! Plain text tables: rows in, aligned lines out.

/// Lays out rows under headings. A column is as wide as its widest cell; nothing is cut.
pub(crate) fn lines(headings: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head = headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<_>>();
    std::iter::once(&head)
        .chain(rows)
        .map(|row| {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("  {}", cells.join("   ")).trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "long".to_owned()], vec!["bbb".to_owned(), "x".to_owned()]];
        assert_eq!(lines(&["N", "M"], &rows), ["  N     M", "  a     long", "  bbb   x"]);
    }
}
