//! Reads metrics from an exposition.

/// The sum of all samples with this name whose labels contain all of these texts, for example `method="GetInfo"`.
pub fn sum(exposition: &str, name: &str, labels: &[&str]) -> f64 {
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, set) = series.split_once('{').unwrap_or((series, ""));
            (found == name && labels.iter().all(|label| set.contains(label)))
                .then(|| value.parse::<f64>().ok())?
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::sum;

    const TEXT: &str = "# HELP a b\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\nb 5\n";

    #[test]
    fn sums_the_series_that_match() {
        assert_eq!(
            [sum(TEXT, "a_total", &[]), sum(TEXT, "a_total", &["x=\"2\""]), sum(TEXT, "b", &[])],
            [7.0, 4.0, 5.0]
        );
    }
}
