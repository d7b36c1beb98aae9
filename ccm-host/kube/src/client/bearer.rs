//! Sends requests with the token of a ServiceAccount.
//!
//! In: requests, and an [`Account`] that has the token. Out: the answers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, StatusCode, header::AUTHORIZATION};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _};

use super::guard::{Answer, copy};
use crate::account::Account;

#[derive(Debug, Clone)]
pub(super) struct Bearer<S> {
    inner: S,
    account: Account,
}

impl<S> Bearer<S> {
    pub(super) fn new(inner: S, account: Account) -> Self {
        Self { inner, account }
    }
}

impl<S> Service<Request<Body>> for Bearer<S>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    /// Repeats a request once that is rejected for its token: it was not processed.
    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (inner, account) = (self.inner.clone(), self.account.clone());
        Box::pin(async move {
            let token = account.token().await?;
            let again = copy(&request);
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            let answer = inner.clone().oneshot(request).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
            account.rejected(&token);
            let Some(mut request) = again else { return Ok(answer) };
            request.headers_mut().insert(AUTHORIZATION, account.token().await?);
            inner.oneshot(request).await
        })
    }
}
