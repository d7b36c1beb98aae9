//! Shrinks a failing plan: omits steps while the same rule is broken.

/// The numbers of the steps that `fails` needs; it holds for all of `steps`.
///
/// Tries halves first, then ever smaller parts, as delta debugging does; at most `budget` runs.
pub fn shrink(steps: &[usize], mut budget: usize, mut fails: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut kept = steps.to_vec();
    let mut parts = 2;
    while kept.len() > 1 {
        let size = kept.len().div_ceil(parts);
        let mut without_one = None;
        for part in 0..parts {
            let out = part * size..((part + 1) * size).min(kept.len());
            if out.is_empty() {
                continue;
            }
            if budget == 0 {
                return kept;
            }
            budget -= 1;
            let rest: Vec<usize> =
                kept.iter().enumerate().filter(|(at, _)| !out.contains(at)).map(|(_, step)| *step).collect();
            if fails(&rest) {
                without_one = Some(rest);
                break;
            }
        }
        match without_one {
            Some(rest) => {
                kept = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_kept() {
        let steps: Vec<usize> = (0..60).collect();
        let needs =
            |wanted: &'static [usize]| move |left: &[usize]| wanted.iter().all(|step| left.contains(step));
        assert_eq!(shrink(&steps, 500, needs(&[7, 41, 42])), [7, 41, 42]);
        assert_eq!(shrink(&steps, 500, needs(&[59])), [59]);
        assert_eq!(shrink(&steps, 0, needs(&[59])).len(), 60, "no budget, no change");
        assert_eq!(shrink(&[3], 10, |_| true), [3]);
    }
}
