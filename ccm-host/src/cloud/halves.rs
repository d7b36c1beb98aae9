//! Batches that were too large for the other end, and are tried again in halves at once.

use super::{CloudError, ErrorReason};

/// A batch is halved at most so many times: 500 items become 32 calls at worst.
const DEEPEST: u8 = 5;

/// Items that still must be sent.
#[derive(Debug)]
pub(super) struct Halves<I>(Vec<(u8, Vec<I>)>);

impl<I> Halves<I> {
    pub(super) fn of(batches: impl IntoIterator<Item = Vec<I>>) -> Self {
        let mut waiting: Vec<_> =
            batches.into_iter().filter(|batch| !batch.is_empty()).map(|b| (0, b)).collect();
        waiting.reverse();
        Self(waiting)
    }

    /// The next batch, and how often it was halved already.
    pub(super) fn next(&mut self) -> Option<(u8, Vec<I>)> {
        self.0.pop()
    }

    /// The batch failed: its halves wait now, or it comes back because halving does not help.
    pub(super) fn split(&mut self, depth: u8, mut batch: Vec<I>, error: &CloudError) -> Option<Vec<I>> {
        let too_large = error.is(ErrorReason::BatchTooLarge) || error.is_too_large();
        if !too_large || batch.len() < 2 || depth >= DEEPEST {
            return Some(batch);
        }
        let second = batch.split_off(batch.len() / 2);
        self.0.push((depth + 1, second));
        self.0.push((depth + 1, batch));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::status;

    /// Sends all; batches above `most` are refused. Returns the sizes of all calls and what failed.
    fn send(items: usize, most: usize, error: &CloudError) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let mut halves = Halves::of([(0..items).collect()]);
        let (mut calls, mut sent, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((depth, batch)) = halves.next() {
            calls.push(batch.len());
            if batch.len() <= most {
                sent.extend(batch);
            } else if let Some(batch) = halves.split(depth, batch, error) {
                failed.extend(batch);
            }
        }
        (calls, sent, failed)
    }

    #[test]
    fn a_batch_that_is_too_large_is_halved_until_it_fits() {
        for error in [status::local("M", ErrorReason::BatchTooLarge, ""), status::too_large("M", "")] {
            let (calls, sent, failed) = send(10, 3, &error);
            assert_eq!(calls, [10, 5, 2, 3, 5, 2, 3]);
            assert_eq!(sent, (0..10).collect::<Vec<_>>(), "in order");
            assert!(failed.is_empty());
        }
    }

    #[test]
    fn halving_has_an_end() {
        let too_large = status::too_large("M", "");
        let (calls, _, failed) = send(500, 0, &too_large);
        assert_eq!(failed.len(), 500);
        assert!(calls.len() <= 63, "{} calls", calls.len());
        assert_eq!(send(1, 0, &too_large).0, [1], "one item cannot be halved");
    }

    #[test]
    fn other_errors_are_not_helped_by_halving() {
        let (calls, _, failed) = send(10, 3, &status::unavailable("M", ""));
        assert_eq!((calls, failed.len()), (vec![10], 10));
    }
}
