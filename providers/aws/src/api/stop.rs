//! Why a mutation goes no further.
//!
//! In: a failure of AWS, an error of the contract, the end of a term. Out: what the caller is told.

use std::time::Duration;

use cloudprovider_sdk::proto::{ErrorReason, InProgress, ItemError};
use cloudprovider_sdk::{CallContext, ProviderError};

use super::Failure;

/// How soon another one can go on.
const UNTIL_ANOTHER_LEADS: Duration = Duration::from_secs(1);

/// The reason of what waits for its turn.
const PACED: &str = "PACED";

/// Why a mutation goes no further now.
pub(crate) enum Stop {
    Failed(ProviderError),
    /// Nothing is wrong.
    Later(InProgress),
}

impl From<ProviderError> for Stop {
    fn from(error: ProviderError) -> Self {
        Self::Failed(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure.paced_for() {
            Some(_wait) => Self::of(&failure),
            None => Self::Failed(failure.into()),
        }
    }
}

impl Stop {
    /// Of a failure that several share.
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure.paced_for() {
            Some(wait) => Self::Later(later(wait, PACED, "AWS allows no more calls for now")),
            None => Self::Failed(failure.to_error()),
        }
    }

    /// Whether AWS was not asked, or did not listen.
    pub(crate) fn changed_nothing(&self) -> bool {
        match self {
            Self::Later(why) => why.reason == PACED,
            Self::Failed(error) => error.reason() == ErrorReason::RateLimited,
        }
    }

    /// As the result of one item of a batch has it.
    pub(crate) fn of_item(self) -> (Option<InProgress>, Option<ItemError>) {
        match self {
            Self::Later(why) => (Some(why), None),
            Self::Failed(error) => (None, Some(error.to_item())),
        }
    }

    /// Before each change: none is made by a process that has been told to end, or for a host that leads no more.
    pub(crate) fn if_cancelled(ctx: &CallContext) -> Result<(), Self> {
        if ctx.cancellation().is_cancelled() {
            return Err(Self::Later(later(UNTIL_ANOTHER_LEADS, "STOPPING", "somebody else goes on")));
        }
        Ok(())
    }
}

pub(crate) fn later(after: Duration, reason: &str, message: &str) -> InProgress {
    let retry_after = after.max(Duration::from_millis(100)).try_into().ok();
    InProgress { retry_after, reason: reason.to_owned(), message: message.to_owned() }
}
