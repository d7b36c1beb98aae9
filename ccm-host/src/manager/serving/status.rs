//! The page at `/status`, which shows `/state` to people in a browser.
//!
//! One file, served as it is. Its policy lets it run its own script, apply its own style and ask its own origin; nothing
//! else is loaded, and no text of the host becomes markup.

use axum::{
    Router,
    http::{HeaderName, HeaderValue, header},
    response::IntoResponse as _,
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("status/page.html");

pub(super) fn router() -> Router {
    // Without the policy there is no page: base64 and its words are fit for a header.
    let Ok(policy) = HeaderValue::try_from(policy()) else { return Router::new() };
    let headers: [(HeaderName, HeaderValue); 6] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    Router::new().route("/status", get(async move || (headers, PAGE).into_response()))
}

/// Names script and style by their digests.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        digest("script"),
        digest("style")
    )
}

fn digest(tag: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content(tag))))
}

/// What is between the page's only pair of these tags.
fn content(tag: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<{tag}>")).unwrap_or_default();
    rest.split_once(&format!("</{tag}>")).unwrap_or_default().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_makes_no_markup_of_text() {
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "{tag}");
            assert!(content(tag).len() > 500, "{tag}");
        }
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "style=",
            " src=",
            "href=",
            "@import",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        // The only address is the name of a namespace, which nobody fetches.
        assert_eq!(PAGE.matches("://").count(), 1);
        assert!(policy().starts_with("default-src 'none'; script-src 'sha256-"));
    }
}
