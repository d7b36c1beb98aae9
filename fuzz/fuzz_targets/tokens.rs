//! Page tokens: the host sends a provider what it once got, or anything. A token that was never issued is refused, and one
//! that was leads where its cloud's own token led.

#![no_main]

use cloudprovider_sdk::{Pager, proto::ListRoutesRequest};

fn asked(token: &str) -> ListRoutesRequest {
    ListRoutesRequest { page_token: token.to_owned(), ..Default::default() }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let pager = Pager::default();
    assert!(text.is_empty() || pager.open(&asked(text)).is_err(), "a token that was never issued is taken");
    if let Ok(token) = pager.seal(&asked(""), text) {
        assert!(token.len() <= 1024, "a token of {} bytes", token.len());
        assert_eq!(pager.open(&asked(&token)).as_deref().ok(), Some(text));
    }
});
