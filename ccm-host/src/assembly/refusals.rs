//! Tells a lasting 401 or 403 from that of an apiserver that is starting: it refuses everybody until it has read tokens,
//! roles and bindings.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than an apiserver needs for that.
const SETTLED: Duration = Duration::from_secs(10);

/// Since when the apiserver has been refusing, if it has.
#[derive(Debug, Default)]
pub(super) struct Refusals(Option<Instant>);

impl Refusals {
    /// Notes one. True once they have lasted too long for an apiserver that is starting.
    pub(super) fn are_final(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= SETTLED
    }

    /// The apiserver did something else.
    pub(super) fn ended(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_lasting_refusal_is_final() {
        let mut refusals = Refusals::default();
        assert!(!refusals.are_final());
        tokio::time::sleep(SETTLED / 2).await;
        assert!(!refusals.are_final());
        refusals.ended();
        assert!(!refusals.are_final());
        tokio::time::sleep(SETTLED).await;
        assert!(refusals.are_final());
    }
}
