//! Whether the apiserver and this process still take each other for who they are.
//!
//! In: how each request ended. Out: when nothing but refusals have come for a minute: the apiserver rejects this process's
//! credentials, or one side the other's certificate. The files that a kubeconfig names are read once, so a process that waits
//! would wait for ever, and a restart mends it. An apiserver that starts refuses everybody for a moment: that is forgiven.

use std::{io, sync::Arc, time::Duration};

use http::{Response, StatusCode};
use rustls::{AlertDescription, Error as TlsError};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tower::BoxError;

/// How long refusals are forgiven.
const FORGIVEN: Duration = Duration::from_secs(60);

/// Since when one side has refused the other. Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Recognition(Arc<watch::Sender<Option<Instant>>>);

impl Recognition {
    pub(super) fn saw<B>(&self, answer: &Result<Response<B>, BoxError>) {
        let is_refused = match answer {
            Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
            Err(error) if is_about_identity(&**error) => true,
            Err(_) => return,
        };
        self.0.send_if_modified(|since| {
            let before = *since;
            *since = is_refused.then(|| before.unwrap_or_else(Instant::now));
            *since != before
        });
    }

    /// Returns once refusals are no longer forgiven.
    pub async fn lost(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let since = *changes.borrow_and_update();
            let changed = changes.changed();
            match since {
                None => drop(changed.await),
                Some(since) if timeout_at(since + FORGIVEN, changed).await.is_err() => return,
                Some(_) => {}
            }
        }
    }
}

/// Whether a connection failed because one side does not accept who the other is.
fn is_about_identity(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<TlsError>() {
        return refuses_identity(error);
    }
    // The source of an I/O error is that of the error within.
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match within {
        Some(within) => is_about_identity(within),
        None => error.source().is_some_and(is_about_identity),
    }
}

fn refuses_identity(error: &TlsError) -> bool {
    match error {
        TlsError::InvalidCertificate(_) => true,
        TlsError::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
        ),
        _ => false,
    }
}
